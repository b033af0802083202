// SPDX-License-Identifier: Apache-2.0
#pragma once

// AttentionProbe: what the data thread of an attention worker notes about itself: counters and
// histograms always, trace events while the trace is on. Each call follows what it is named after.

#include <algorithm>
#include <span>

#include "daemon/attention/micro_batch.h"
#include "daemon/metrics/metrics.h"
#include "schedule/adaptive_wait.h"

namespace afd::daemon {

class AttentionProbe {
  public:
    AttentionProbe(const Metrics& metrics, uint32_t session)
        : metrics_(metrics), trace_(metrics.trace()), session_(session) {}

    void began_step(MicroBatch& micro_batch) const {
        micro_batch.step_start_ns = schedule::steady_now_ns();
    }

    void attended(const MicroBatch& micro_batch, uint64_t start_ns, uint32_t num_rows) {
        const uint64_t now_ns = schedule::steady_now_ns();
        metrics_.add(Counter::kComputeUs, (now_ns - start_ns) / 1000);
        record(TraceKind::kAttention, micro_batch, start_ns, now_ns, num_rows);
    }

    // `all`: every micro-batch of the worker.
    void dispatched(MicroBatch& micro_batch, uint64_t start_ns, std::span<const MicroBatch> all) {
        micro_batch.dispatched_ns = schedule::steady_now_ns();
        micro_batch.round = micro_batch.lane().round();
        metrics_.add(Counter::kRounds, 1);
        metrics_.histogram(Histogram::kInFlight)
            .record(static_cast<uint64_t>(
                std::count_if(all.begin(), all.end(), [](const MicroBatch& other) {
                    return other.stage == MicroBatch::Stage::kExperts;
                })));
        record(TraceKind::kDispatch,
               micro_batch,
               start_ns,
               micro_batch.dispatched_ns,
               micro_batch.num_rows());
    }

    // `start_ns`: when the results were found. Without peers the dispatch is the experts, too, and
    // there is no wait.
    void combined(const MicroBatch& micro_batch, uint64_t start_ns) {
        if (!trace_.is_on()) return;
        const uint32_t num_rows = micro_batch.num_rows();
        if (micro_batch.lane().traits().has_peers) {
            record(TraceKind::kWait, micro_batch, micro_batch.dispatched_ns, start_ns, num_rows);
        }
        record(TraceKind::kCombine, micro_batch, start_ns, schedule::steady_now_ns(), num_rows);
    }

    void finished_step(const MicroBatch& micro_batch, uint64_t start_ns) {
        const uint64_t now_ns = schedule::steady_now_ns();
        metrics_.add(Counter::kSteps, 1);
        metrics_.add(Counter::kRows, micro_batch.num_rows());
        metrics_.histogram(Histogram::kStepNs).record(now_ns - micro_batch.step_start_ns);
        record(TraceKind::kHead, micro_batch, start_ns, now_ns, micro_batch.num_rows());
    }

    void timed_out() { metrics_.add(Counter::kTimeouts, 1); }

  private:
    void record(TraceKind kind,
                const MicroBatch& micro_batch,
                uint64_t start_ns,
                uint64_t end_ns,
                uint32_t num_rows) {
        if (!trace_.is_on()) return;
        const bool has_round = kind != TraceKind::kAttention && kind != TraceKind::kHead;
        trace_.record({.start_ns = start_ns,
                       .duration_ns = end_ns - start_ns,
                       .kind = kind,
                       .micro_batch = static_cast<uint8_t>(micro_batch.index()),
                       .session = static_cast<uint16_t>(session_),
                       .layer = micro_batch.layer,
                       .num_rows = num_rows,
                       .round = has_round ? micro_batch.round : 0});
    }

    Metrics metrics_;
    TraceRing trace_;
    const uint32_t session_;
};

}  // namespace afd::daemon
