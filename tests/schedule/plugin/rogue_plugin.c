/* SPDX-License-Identifier: Apache-2.0 */
/* Plugins that answer nonsense, for the tests of what is done about it. */
#include <stddef.h>

#include "schedule/plugin/plugin_api.h"

static int g_state;

static void* create(const AfdSchedulerConfig* config) {
    return config->num_sessions == 1 ? NULL : &g_state;
}

static void destroy(void* state) {
    (void)state;
}

/* The first one thrice, and one that does not exist; nothing at all while only one is ready. */
static uint32_t decide(void* state,
                       uint64_t now_us,
                       const AfdReadyDescriptor* ready,
                       uint32_t num_ready,
                       uint32_t* chosen,
                       uint64_t* decide_again_us) {
    (void)state;
    (void)ready;
    *decide_again_us = now_us;
    if (num_ready < 4) return 0;
    chosen[0] = 0;
    chosen[1] = 0;
    chosen[2] = 4000000000u;
    return 4000000000u;
}

/* The newest one of each session: its older ones would wait for ever. */
static uint32_t decide_newest(void* state,
                              uint64_t now_us,
                              const AfdReadyDescriptor* ready,
                              uint32_t num_ready,
                              uint32_t* chosen,
                              uint64_t* decide_again_us) {
    uint32_t num_chosen = 0;
    (void)state;
    *decide_again_us = now_us;
    for (uint32_t i = 0; i < num_ready; ++i) {
        uint32_t later = i + 1;
        while (later < num_ready && ready[later].session != ready[i].session) ++later;
        if (later == num_ready) chosen[num_chosen++] = i;
    }
    return num_chosen;
}

/* Which one of the tables a library returns is the choice of its build. */
enum { AFD_ROGUE, AFD_NEWEST, AFD_OLD, AFD_SHORT, AFD_NAMELESS };

static const AfdPlugin kTables[] = {
    [AFD_ROGUE] = {.size = sizeof(AfdPlugin),
                   .version = AFD_PLUGIN_VERSION,
                   .name = "rogue",
                   .scheduler_create = create,
                   .scheduler_destroy = destroy,
                   .scheduler_decide = decide},
    [AFD_NEWEST] = {.size = sizeof(AfdPlugin),
                    .version = AFD_PLUGIN_VERSION,
                    .name = "newest first",
                    .scheduler_create = create,
                    .scheduler_destroy = destroy,
                    .scheduler_decide = decide_newest},
    [AFD_OLD] = {.size = 8, .version = 0, .name = "old"},
    [AFD_SHORT] = {.size = 8, .version = AFD_PLUGIN_VERSION, .name = "short"},
    [AFD_NAMELESS] = {.size = sizeof(AfdPlugin), .version = AFD_PLUGIN_VERSION},
};

__attribute__((visibility("default"))) const AfdPlugin* afd_plugin(uint32_t version);

const AfdPlugin* afd_plugin(uint32_t version) {
    (void)version;
    return &kTables[AFD_TABLE];
}
