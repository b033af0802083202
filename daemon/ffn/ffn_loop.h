// SPDX-License-Identifier: Apache-2.0
#pragma once

// FfnLoop: the data thread of an FFN worker. It finds ready descriptors in its window, batches
// their tokens by expert, runs the experts and returns the rows:
//
//   scan -> decide -> take -> FfnWorkerBatching -> Experts -> results -> acknowledge
//
// With router = ffn the gate and MoeInitRoutingV3 stand where FfnWorkerBatching does, and every
// result row carries its routing weight behind its values (daemon/ffn/expert_batch.h).
//
// The Experts are a part of the fused-MoE framework (ops/fused_moe): this loop is its driver on the
// side where the rows arrive, in the format kGrouped.
//
// It keeps no state of a round between passes: a successor of a killed worker finds everything
// that is not acknowledged in the window and executes it again, with the same bits (R3).
// What sessions write is validated by ReadyScan; bad bytes cost only their descriptor.

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "daemon/control/worker_port.h"
#include "daemon/ffn/arrived_seals.h"
#include "daemon/ffn/expert_batch.h"
#include "daemon/ffn/ffn_probe.h"
#include "daemon/ffn/two_phase_experts.h"
#include "daemon/metrics/metrics.h"
#include "daemon/program/log_limit.h"
#include "model/decoder/router.h"
#include "ops/fused_moe/experts.h"
#include "ops/fused_moe/sent_rows.h"
#include "ops/tensor/parallel.h"
#include "ops/tensor/workspace.h"
#include "schedule/context/context_words.h"
#include "schedule/dispatch/pass_scheduler.h"
#include "schedule/dispatch/ready_scan.h"
#include "schedule/layout/row_checksum.h"
#include "schedule/layout/row_dtype.h"
#include "schedule/transport/transport.h"
#include "schedule/wait/adaptive_wait.h"

namespace afd::daemon {

// What a loop at least has for the rows of its largest pass, A * BS * K1: as they arrive, as
// experts take them, and their results. It clears this when it is made, so it is resident; scratch
// of the operators is not.
uint64_t pass_bytes(const schedule::Geometry& geometry, schedule::RowDtype dtype, size_t hidden);

class FfnLoop {
  public:
    // What the loop works with; all outlive it.
    struct Parts {
        schedule::ReturnTransport* transport = nullptr;
        const schedule::ExpertPlacement* placement = nullptr;
        // Key = layer_id * num_local_experts_per_layer(rank) + local id. REQUIRES: takes kGrouped.
        ops::Experts* experts = nullptr;
        size_t hidden = 0;
        schedule::RowDtype dispatch_dtype = schedule::RowDtype::kBf16;  // How rows arrive.
        const model::Router* router = nullptr;  // router = ffn; null: the sessions route.
        bool rows_have_rest = false;            // Only with a router; instance_geometry.h.
        ops::Parallel* parallel = nullptr;
        WorkerPort* port = nullptr;
        Metrics metrics;
        ops::StageProfile* profile = nullptr;  // Optional: time per stage on this side.
        bool row_checksums = false;            // schedule/layout/row_checksum.h
        TwoPhaseExperts* two_phase = nullptr;  // Null: no session dispatches in two phases.
    };

    // All memory for the largest pass, A * BS * K1 rows, is reserved here.
    FfnLoop(const Parts& parts,
            std::unique_ptr<schedule::PassScheduler> scheduler,
            schedule::AdaptiveWait wait);

    // Returns after kShutdown, and when run_flag is 0 before a turn.
    void run();

  private:
    bool take_commands();
    bool advance_two_phase();
    void execute(std::span<const schedule::ReadyDescriptor> descriptors);
    void run_experts();
    ops::ActivationRows activation_rows();
    void return_rows();
    std::span<const std::byte> returned_row(size_t i, unsigned thread);
    size_t row_bytes() const {
        return parts_.hidden * sizeof(ops::Bf16) + sizeof(float) + schedule::kRowSealBytes;
    }
    void look_at_scheduler();
    void wait_for_sessions();
    // Whether any session computes or waits for a peer, as far as is known.
    bool has_working_session();

    Parts parts_;
    schedule::AdaptiveWait wait_;
    bool expects_work_ = true;  // False after a tick without any: the next wait does not spin.
    schedule::Heartbeat heartbeat_;
    schedule::ContextWords words_;
    schedule::ReadyScan scan_;
    std::unique_ptr<schedule::PassScheduler> scheduler_;
    schedule::PassSchedulerErrors scheduler_errors_;  // As the metrics have them.
    LogLimit scheduler_warnings_;

    FfnProbe probe_;
    std::unique_ptr<ExpertBatcher> batcher_;
    ExpertBatch batch_;
    std::optional<ArrivedSeals> seals_;  // With row_checksums.
    ops::ArrivedRows arrived_;           // Makes rows of what is not taken as it is.
    std::vector<ops::Bf16> results_;     // [A * BS * K1, hidden], in the order of the batch
    std::vector<std::byte> returned_;    // A row for each thread, as it goes into the window.
    ops::Workspace workspace13_;
    ops::Workspace workspace2_;
};

}  // namespace afd::daemon
