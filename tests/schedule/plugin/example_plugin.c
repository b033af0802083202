/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An example of a plugin, in plain C:
 *   scheduler   serves the session whose turn it is, alone; passes the turn on when that session
 *               has nothing ready for deadline_us
 *   placement   experts in blocks: the first ones on rank 0, the next on rank 1, ...; shared
 *               experts on every rank
 *   replicas    sessions count from the last rank down
 * Build: cc -shared -fPIC -I <root of the repository> example_plugin.c -o example_plugin.so
 */
#include <stdlib.h>

#include "schedule/plugin/plugin_api.h"

typedef struct Turns {
    AfdSchedulerConfig config;
    uint32_t session;
} Turns;

static void* create(const AfdSchedulerConfig* config) {
    Turns* turns = calloc(1, sizeof(Turns));
    if (turns != NULL) turns->config = *config;
    return turns;
}

static void destroy(void* state) {
    free(state);
}

static uint32_t decide(void* state,
                       uint64_t now_us,
                       const AfdReadyDescriptor* ready,
                       uint32_t num_ready,
                       uint32_t* chosen,
                       uint64_t* decide_again_us) {
    Turns* turns = state;
    for (uint32_t i = 0; i < num_ready; ++i) {
        if (ready[i].session != turns->session) continue;
        turns->session = (turns->session + 1) % turns->config.num_sessions;
        chosen[0] = i;
        return 1;
    }
    if (now_us >= ready[0].ready_us + turns->config.deadline_us) {
        turns->session = (ready[0].session + 1) % turns->config.num_sessions;
        chosen[0] = 0;
        return 1;
    }
    *decide_again_us = ready[0].ready_us + turns->config.deadline_us;
    return 0;
}

static uint32_t place(const AfdLayer* layers,
                      uint32_t num_layers,
                      uint32_t num_ranks,
                      uint32_t layer_id,
                      uint32_t expert,
                      uint32_t* ranks) {
    (void)num_layers;
    const uint32_t num_routed = layers[layer_id].num_routed;
    if (expert >= num_routed) {
        for (uint32_t rank = 0; rank < num_ranks; ++rank) ranks[rank] = rank;
        return num_ranks;
    }
    const uint32_t block = (num_routed + num_ranks - 1) / num_ranks;
    ranks[0] = expert / block;
    return 1;
}

static uint32_t choose(uint32_t layer_id, uint32_t expert, uint32_t session, uint32_t num_replicas) {
    (void)layer_id;
    (void)expert;
    return num_replicas - 1 - session % num_replicas;
}

static const AfdPlugin kPlugin = {
    .size = sizeof(AfdPlugin),
    .version = AFD_PLUGIN_VERSION,
    .name = "turns, blocks, last rank first",
    .scheduler_create = create,
    .scheduler_destroy = destroy,
    .scheduler_decide = decide,
    .place_expert = place,
    .choose_replica = choose,
};

__attribute__((visibility("default"))) const AfdPlugin* afd_plugin(uint32_t version);

const AfdPlugin* afd_plugin(uint32_t version) {
    return version == AFD_PLUGIN_VERSION ? &kPlugin : NULL;
}
