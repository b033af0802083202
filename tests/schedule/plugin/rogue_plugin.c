/* SPDX-License-Identifier: Apache-2.0 */
/* Plugins that answer nonsense, for the tests of what is done about it. */
#include <signal.h>
#include <stddef.h>
#include <unistd.h>

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

/* One rank for each routed expert, and all for others; but for some numbers of ranks. */
static uint32_t place_by_mood(const AfdLayer* layers,
                              uint32_t num_layers,
                              uint32_t num_ranks,
                              uint32_t layer_id,
                              uint32_t expert,
                              uint32_t* ranks) {
    (void)num_layers;
    if (num_ranks == 1) _exit(3);
    if (num_ranks == 3) raise(SIGSEGV);
    if (num_ranks == 4) sleep(600);
    if (num_ranks == 5) return num_ranks + 5;
    for (uint32_t rank = 0; rank < num_ranks; ++rank) ranks[rank] = rank;
    if (expert >= layers[layer_id].num_routed) return num_ranks;
    ranks[0] = expert % num_ranks;
    return 1;
}

/* Which one of the tables a library returns is the choice of its build. */
enum {
    AFD_ROGUE,
    AFD_NEWEST,
    AFD_OLD,
    AFD_SHORT,
    AFD_NAMELESS,
    AFD_PAINTER,
    AFD_HALF,
    AFD_MOODY
};

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
    [AFD_PAINTER] = {.size = sizeof(AfdPlugin),
                     .version = AFD_PLUGIN_VERSION,
                     .name = "\033[31mred\nE afdd: a line of its own"},
    [AFD_HALF] = {.size = sizeof(AfdPlugin),
                  .version = AFD_PLUGIN_VERSION,
                  .name = "half",
                  .scheduler_create = create},
    [AFD_MOODY] = {.size = sizeof(AfdPlugin),
                   .version = AFD_PLUGIN_VERSION,
                   .name = "moody",
                   .place_expert = place_by_mood},
};

__attribute__((visibility("default"))) const AfdPlugin* afd_plugin(uint32_t version);

const AfdPlugin* afd_plugin(uint32_t version) {
    (void)version;
    return &kTables[AFD_TABLE];
}
