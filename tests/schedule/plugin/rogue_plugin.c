/* SPDX-License-Identifier: Apache-2.0 */
/* A plugin that answers nonsense, for the tests of what is done about it. */
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

static const AfdPlugin kPlugin = {
    .size = sizeof(AfdPlugin),
    .version = AFD_PLUGIN_VERSION,
    .name = "rogue",
    .scheduler_create = create,
    .scheduler_destroy = destroy,
    .scheduler_decide = decide,
};
static const AfdPlugin kOld = {.size = 8, .version = 0, .name = "old"};

__attribute__((visibility("default"))) const AfdPlugin* afd_plugin(uint32_t version);

const AfdPlugin* afd_plugin(uint32_t version) {
    (void)version;
#ifdef AFD_OLD_PLUGIN
    return &kOld;
#else
    (void)kOld;
    return &kPlugin;
#endif
}
