// SPDX-License-Identifier: Apache-2.0
#pragma once

// InstanceMemory: what the workers of a host take of memory, known before any of them starts: from
// the configuration, config.json and the headers of the tensors. Only what is certain to be
// resident is counted, so that nothing is refused that would run: no scratch, no code, no routers
// (who needs how much of them shows when they are read).
//
// Private memory is each process's own, or shared memory of the instance, and nobody gives it back;
// it has to be there. Experts in the weight cache are one copy for all workers, which the kernel
// may drop and read again: without room for it they are slow. Those that find no room in the
// cache's file system are private, and those in one that is memory are not dropped (cache_room.h).

#include <cstdint>
#include <optional>
#include <string>

#include "daemon/config/config.h"
#include "daemon/instance/cache_room.h"
#include "model/family/model_files.h"
#include "ops/format/numeric_class.h"
#include "proto/status.h"
#include "schedule/dispatch/expert_placement.h"
#include "schedule/layout/window_layout.h"

namespace afd::daemon {

struct InstanceMemory {
    uint32_t num_attention_workers = 0;  // Of the host.
    // In bytes, of all of them together:
    uint64_t attention_bytes = 0;       // Weights; 0 also if they are not there yet.
    uint64_t kv_bytes = 0;              // KV caches.
    uint64_t pass_bytes = 0;            // Rows of the largest passes and micro-batches.
    uint64_t segment_bytes = 0;         // Where the instance is led, those of all of its workers.
    uint64_t window_bytes = 0;          // Of windows that are no segments (window_memory.h).
    uint64_t private_expert_bytes = 0;  // Without a weight cache each worker has its own.
    uint64_t mapped_expert_bytes = 0;   // Else, of those that any worker of the host has.
    uint64_t cached_expert_bytes = 0;   // Yet to come to a weight cache that is memory itself.
    CacheRoom cache_room = {};          // Where those are mapped.

    uint64_t private_bytes() const {
        return attention_bytes + kv_bytes + pass_bytes + segment_bytes + window_bytes +
               private_expert_bytes + cached_expert_bytes;
    }

    // "weights of 2 attention workers 1024 MiB, KV caches 512 MiB, segments 18 MiB": all that is
    // private.
    std::string private_text() const;
    // What to change so that it becomes less.
    std::string remedy() const;
};

// What it depends on besides the configuration. The pointers may be null.
struct MemorySources {
    const model::ModelConfig& model;
    const model::ModelFiles* files = nullptr;  // Null: there are no weights yet.
    ops::NumericClass numeric_class = ops::NumericClass::kPortable;
    const schedule::ExpertPlacement* placement = nullptr;  // Null: colocated.
    const schedule::WindowLayout& layout;
    std::optional<CacheRoom> cache_room = {};  // Nothing: as it is; only files tell.
};

InstanceMemory memory_here(const Config& config, const MemorySources& sources);
// On another host. `has_weight_cache`: whether its workers share their experts in one.
InstanceMemory memory_on(const std::string& host,
                         bool has_weight_cache,
                         const Config& config,
                         const MemorySources& sources);

// `others`: what has memory already and keeps it (" beside those that serve"); empty: nobody.
// `remedy`: empty: that of `memory`.
// Errors: kResourceExhausted: this host has no room for what is private. Else each worker would
// find out, or be killed for it, at each of its starts.
Result<> check_room_for(const InstanceMemory& memory,
                        const std::string& others = "",
                        const std::string& remedy = "");
// The same of another host, which has so much available.
Result<> check_room_on(const std::string& host,
                       const InstanceMemory& memory,
                       uint64_t num_available);

}  // namespace afd::daemon
