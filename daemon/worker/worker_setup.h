// SPDX-License-Identifier: Apache-2.0
#pragma once

// WorkerSetup: what both worker programs make out of afdd's Welcome before they load weights: the
// opened model, the layout of the windows, the placement of the experts, and how to attach.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "daemon/control/worker_control.h"
#include "daemon/metrics/metrics.h"
#include "daemon/worker/weight_reader.h"
#include "model/decoder/expert_weights.h"
#include "model/family/model_files.h"
#include "ops/format/numeric_class.h"
#include "schedule/context/heartbeat.h"
#include "schedule/dispatch/expert_placement.h"
#include "schedule/layout/router_placement.h"
#include "schedule/layout/row_dtype.h"
#include "schedule/layout/window_layout.h"
#include "schedule/shared_memory/attach_config.h"
#include "schedule/shared_memory/segment.h"
#include "schedule/wait/adaptive_wait.h"
#include "threads/thread_pool.h"

namespace afd::daemon {

struct WorkerSetup {
    model::ModelFiles files;
    ops::NumericClass numeric_class;
    schedule::WindowLayout layout;
    schedule::AttachConfig attach;
    // The memory of two-phase rounds, as afdd hands it over; `attach` refers to it.
    std::unique_ptr<schedule::HandedTwoPhaseMemory> two_phase_memory;
    schedule::ExpertPlacement placement;
    schedule::Segment metrics_segment;
    schedule::Segment own_control;  // Where nothing else is shared with peers; else empty.
    schedule::RouterPlacement router = schedule::RouterPlacement::kAttention;
    bool is_colocated = false;
    uint32_t num_dispatched_shared = 0;  // daemon/config/instance_geometry.h
    schedule::RowDtype dispatch_dtype = schedule::RowDtype::kBf16;
    bool row_checksums = false;  // schedule/layout/row_checksum.h

    // Errors: of the model's files; kFailedPrecondition when the model or the machine is not the
    // one that afdd saw (names both).
    static Result<WorkerSetup> make(const WorkerControl& control,
                                    schedule::Role role,
                                    uint32_t index);

    // Whether attention workers compute the shared experts, beside the wait for the others.
    bool has_shared_stage() const {
        return num_dispatched_shared < files.config().num_shared_slots();
    }

    Metrics metrics() const { return Metrics({metrics_segment.data(), metrics_segment.size()}); }
};

// What a placement asks of every layer of the model, with the shared experts that are dispatched.
std::vector<schedule::LayerExperts> layer_experts(const model::ModelConfig& config,
                                                  uint32_t num_dispatched_shared);

struct WorkerExperts {
    model::LoadedExperts loaded;
    std::unique_ptr<WeightReader> reader;  // Null: nothing is mapped.
};

// Loads experts through the weight cache that the Welcome names, and logs what came of it: one
// line, and a warning if something is wrong with the cache. What is mapped is read from now on, by
// a thread and by whoever uses it; `heartbeat` beats while the data thread does. The process ends
// when it finds damage. Errors: those of model::load_experts().
Result<WorkerExperts> load_worker_experts(const WorkerSetup& setup,
                                          const control::Welcome& welcome,
                                          std::span<const model::ExpertSlot> slots,
                                          size_t num_keys,
                                          ops::Parallel& parallel,
                                          schedule::Heartbeat heartbeat);

// Gives up what serving does not need (system_calls.h), unless the Welcome says not to. A kernel
// that cannot do it, and a transport of UCX that needs more, are only logged. Call when everything
// is loaded, attached and started.
void confine_worker(const control::Welcome& welcome);

// The threads with which the Welcome wants this worker to compute. Warns where they do not get
// their cores.
std::unique_ptr<threads::ThreadPool> make_thread_pool(const control::Welcome& welcome);

// R9 with the Welcome's numbers.
schedule::AdaptiveWait make_wait(const control::Welcome& welcome, schedule::Doorbell doorbell);

}  // namespace afd::daemon
