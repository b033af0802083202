/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What a shared library offers to take part in scheduling: its own scheduler of FFN passes, its own
 * placement of experts and choice among replicas. Plain C, so any language can build one.
 *
 * A library is named in the configuration:
 *
 *   ffn_scheduler    = "/path/lib.so"    its scheduler; loaded by every FFN worker
 *   expert_placement = "/path/lib.so"    its placement
 *   replica_choice   = "/path/lib.so"    its choice
 *
 * Placements and choices are made for one number of workers: when afdd starts, and again at each
 * resize. afdd loads the library for that in a process of its own, which ends with the answers and
 * has 5 s for all of them. One that crashes or is late is refused, and what serves goes on.
 *
 * It exports one function, afd_plugin, which returns a table that lives as long as the process. Its
 * size, version and name are always set; functions that it does not offer are null. What it answers
 * is checked; bits of results never depend on it.
 */

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Raised with every change of this file that an existing library would not survive. */
#define AFD_PLUGIN_VERSION 1u

/* A descriptor that waits to be executed. */
typedef struct AfdReadyDescriptor {
    uint32_t session;
    uint32_t micro_batch;
    int32_t layer_id;
    uint32_t reserved;
    uint64_t ready_us; /* When it was first seen ready, on the clock of now_us. */
} AfdReadyDescriptor;

typedef struct AfdSchedulerConfig {
    uint32_t num_sessions;      /* A: sessions are 0 ... A - 1. */
    uint32_t num_micro_batches; /* M of each session. */
    uint64_t deadline_us;       /* gather_us of the configuration: how long a pass may wait. */
} AfdSchedulerConfig;

typedef struct AfdLayer {
    uint32_t num_routed;     /* Experts 0 ... num_routed - 1; 0 in a dense layer. */
    uint32_t num_replicated; /* Behind them: shared experts, or the one MLP of a dense layer. */
} AfdLayer;

typedef struct AfdPlugin {
    uint32_t size;    /* sizeof(AfdPlugin) as the library was built. */
    uint32_t version; /* AFD_PLUGIN_VERSION as the library was built. */
    const char* name; /* For logs and the status: 1 to 64 printable characters of ASCII. */

    /* Scheduler. Called on the data thread of one FFN worker: no locks, no waiting, no allocation
     * after create. create returns the state that the others get, or null if it cannot. */
    void* (*scheduler_create)(const AfdSchedulerConfig* config);
    void (*scheduler_destroy)(void* state);
    /* Chooses among ready[0 ... num_ready), ascending by readiness, num_ready >= 1: writes indices
     * into chosen (room for num_ready), at most one of each session, and returns how many. 0: not
     * yet; then *decide_again_us says when to ask again even if nothing new becomes ready. A
     * scheduler that leaves the oldest descriptor for longer than 64 * deadline_us + 100 ms is
     * overruled, even if it takes newer ones of the same session. */
    uint32_t (*scheduler_decide)(void* state,
                                 uint64_t now_us,
                                 const AfdReadyDescriptor* ready,
                                 uint32_t num_ready,
                                 uint32_t* chosen,
                                 uint64_t* decide_again_us);

    /* Placement. Writes the ranks that hold an expert of a layer into ranks (room for num_ranks),
     * each at most once, and returns how many: at least 1. Called once for each expert, of a layer
     * in ascending order, layer by layer. */
    uint32_t (*place_expert)(const AfdLayer* layers,
                             uint32_t num_layers,
                             uint32_t num_ranks,
                             uint32_t layer_id,
                             uint32_t expert,
                             uint32_t* ranks);

    /* Replica choice. Returns which of num_replicas (>= 2) ranks, in the order of the placement, a
     * session sends its rows to. Called once for each session and expert with a choice. */
    uint32_t (*choose_replica)(uint32_t layer_id,
                               uint32_t expert,
                               uint32_t session,
                               uint32_t num_replicas);
} AfdPlugin;

/* The entry point. `version` is AFD_PLUGIN_VERSION of the caller; null: cannot serve it. */
typedef const AfdPlugin* (*AfdPluginEntry)(uint32_t version);
#define AFD_PLUGIN_ENTRY "afd_plugin"

#ifdef __cplusplus
}
#endif
