// SPDX-License-Identifier: Apache-2.0
#pragma once

// AttentionProbe: what the data thread of an attention worker notes about itself: counters and
// histograms always, trace events while the trace is on. Each call follows what it is named after.

#include <algorithm>
#include <span>

#include "daemon/attention/micro_batch.h"
#include "daemon/metrics/metrics.h"
#include "schedule/wait/adaptive_wait.h"

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
        metrics_.add(phase_counter(TraceKind::kAttention), now_ns - start_ns);
        record(TraceKind::kAttention, micro_batch, start_ns, now_ns, num_rows);
    }

    // `all`: every micro-batch of the worker.
    void dispatched(MicroBatch& micro_batch, uint64_t start_ns, std::span<const MicroBatch> all) {
        micro_batch.dispatched_ns = schedule::steady_now_ns();
        micro_batch.round = micro_batch.lane().round();
        metrics_.add(Counter::kRounds, 1);
        metrics_.add(phase_counter(TraceKind::kDispatch), micro_batch.dispatched_ns - start_ns);
        const auto num_in_flight =
            static_cast<uint64_t>(std::count_if(all.begin(), all.end(), [](const auto& other) {
                return other.stage == MicroBatch::Stage::kExperts;
            }));
        metrics_.histogram(Histogram::kInFlight).record(num_in_flight);
        metrics_.set(Counter::kInFlightNow, num_in_flight);
        record(TraceKind::kDispatch,
               micro_batch,
               start_ns,
               micro_batch.dispatched_ns,
               micro_batch.num_rows());
    }

    // One step of a call that does not go by itself.
    void advanced(uint64_t start_ns) {
        metrics_.add(phase_counter(TraceKind::kBlock), schedule::steady_now_ns() - start_ns);
    }

    // `start_ns`: when the results were found. Without peers the dispatch is the experts, too, and
    // there is no wait.
    void combined(const MicroBatch& micro_batch, uint64_t start_ns) {
        const uint64_t now_ns = schedule::steady_now_ns();
        metrics_.add(phase_counter(TraceKind::kCombine), now_ns - start_ns);
        left();
        if (!trace_.is_on()) return;
        const uint32_t num_rows = micro_batch.num_rows();
        if (micro_batch.lane().traits().has_peers) {
            record(TraceKind::kWait, micro_batch, micro_batch.dispatched_ns, start_ns, num_rows);
        }
        record(TraceKind::kCombine, micro_batch, start_ns, now_ns, num_rows);
    }

    // `num_rows`: of the step, that have the head behind them.
    void emitted(const MicroBatch& micro_batch, uint64_t start_ns, uint32_t num_rows) {
        const uint64_t now_ns = schedule::steady_now_ns();
        metrics_.add(phase_counter(TraceKind::kHead), now_ns - start_ns);
        record(TraceKind::kHead, micro_batch, start_ns, now_ns, num_rows);
    }

    void finished_step(const MicroBatch& micro_batch) {
        const uint64_t now_ns = schedule::steady_now_ns();
        metrics_.add(Counter::kSteps, 1);
        metrics_.add(Counter::kRows, micro_batch.num_rows());
        metrics_.histogram(Histogram::kStepRows).record(micro_batch.num_rows());
        metrics_.histogram(Histogram::kStepNs).record(now_ns - micro_batch.step_start_ns);
    }

    // A micro-batch is with the experts no more.
    void left() {
        const uint64_t num_in_flight = metrics_.get(Counter::kInFlightNow);
        if (num_in_flight > 0) metrics_.set(Counter::kInFlightNow, num_in_flight - 1);
    }

    // A wait is over. `is_idle`: there was no request.
    void waited(uint64_t start_ns, bool is_idle, bool has_slept) {
        const uint64_t wait_ns = schedule::steady_now_ns() - start_ns;
        metrics_.add_wait(wait_ns, is_idle, has_slept);
        if (is_idle || !trace_.is_on()) return;
        trace_.record({.start_ns = start_ns,
                       .duration_ns = wait_ns,
                       .kind = TraceKind::kBubble,
                       .session = static_cast<uint16_t>(session_)});
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
