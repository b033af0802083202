// SPDX-License-Identifier: Apache-2.0
#pragma once

// FfnProbe: what the data thread of an FFN worker notes about itself: counters and histograms
// always, trace events while the trace is on. A pass has one event of each stage for each of its
// descriptors.

#include <cstdint>
#include <span>
#include <vector>

#include "daemon/ffn/expert_batch.h"
#include "daemon/metrics/metrics.h"
#include "schedule/dispatch/pass_scheduler.h"
#include "schedule/dispatch/ready_scan.h"
#include "schedule/wait/adaptive_wait.h"

namespace afd::daemon {

class FfnProbe {
  public:
    using Descriptors = std::span<const schedule::ReadyDescriptor>;

    FfnProbe(const Metrics& metrics, const schedule::ExpertPlacement& placement, uint32_t rank)
        : metrics_(metrics),
          trace_(metrics.trace()),
          expert_of_key_(
              size_t{placement.num_layers()} * placement.num_local_experts_per_layer(rank),
              kNotOfAnMoeLayer) {
        const size_t num_local = placement.num_local_experts_per_layer(rank);
        for (const schedule::HeldExpert& held : placement.held_experts(rank)) {
            // The one expert of a dense layer is no expert of an MoE layer.
            if (placement.num_experts(held.layer_id) == 1) continue;
            expert_of_key_[held.layer_id * num_local + static_cast<size_t>(held.local_id)] =
                held.expert;
        }
    }

    // A pass of `descriptors` out of `num_ready` is about to be taken.
    void begin_pass(Descriptors descriptors, size_t num_ready) {
        start_ns_ = schedule::steady_now_ns();
        stage_ns_ = start_ns_;
        is_tracing_ = trace_.is_on();
        const MetricHistogram ages = metrics_.histogram(Histogram::kAgeNs);
        for (const schedule::ReadyDescriptor& descriptor : descriptors) {
            const uint64_t now_us = start_ns_ / 1000;
            ages.record(now_us > descriptor.ready_us ? (now_us - descriptor.ready_us) * 1000 : 0);
        }
        metrics_.histogram(Histogram::kPassDescriptors).record(descriptors.size());
        metrics_.histogram(Histogram::kReady).record(num_ready);
    }

    // A stage of the pass ended.
    void end_stage(TraceKind kind, Descriptors descriptors, size_t num_rows) {
        const uint64_t now_ns = schedule::steady_now_ns();
        metrics_.add(phase_counter(kind), now_ns - stage_ns_);
        if (is_tracing_) trace_stage(kind, descriptors, num_rows, now_ns);
        stage_ns_ = now_ns;
    }

    // The pass is acknowledged.
    void end_pass(const ExpertBatch& batch,
                  size_t num_descriptors,
                  const schedule::ReadyScanErrors& errors) {
        const uint64_t pass_ns = schedule::steady_now_ns() - start_ns_;
        count_rows(batch.num_rows);
        metrics_.add(Counter::kRounds, num_descriptors);
        metrics_.add(Counter::kSteps, 1);
        metrics_.add(Counter::kComputeUs, pass_ns / 1000);
        metrics_.set(
            Counter::kRefused,
            errors.num_bad_flags + errors.num_bad_layers + errors.num_bad_ids + errors.num_deadly);
        metrics_.histogram(Histogram::kPassNs).record(pass_ns);
        metrics_.histogram(Histogram::kPassRows).record(batch.num_rows);
        for (const ops::ExpertGroup& group : std::span(batch.groups).first(batch.num_groups)) {
            count_expert(static_cast<size_t>(group.key), static_cast<uint64_t>(group.count));
        }
    }

    // After a decision that came to nothing, too.
    void corrected(const schedule::PassSchedulerErrors& errors) {
        metrics_.set(Counter::kBadChoices, errors.num_bad_choices);
        metrics_.set(Counter::kOverruled, errors.num_overruled);
    }

    // A step of two-phase rounds.
    void end_block(uint64_t start_ns, uint64_t num_rows) {
        const uint64_t now_ns = schedule::steady_now_ns();
        count_rows(num_rows);
        metrics_.add(Counter::kComputeUs, (now_ns - start_ns) / 1000);
        metrics_.add(phase_counter(TraceKind::kBlock), now_ns - start_ns);
        if (num_rows == 0 || !trace_.is_on()) return;
        trace_.record({.start_ns = start_ns,
                       .duration_ns = now_ns - start_ns,
                       .kind = TraceKind::kBlock,
                       .num_rows = static_cast<uint32_t>(num_rows)});
    }

    // A wait is over. `is_idle`: no session had work.
    void waited(uint64_t start_ns, bool is_idle, bool has_slept) {
        const uint64_t wait_ns = schedule::steady_now_ns() - start_ns;
        metrics_.add_wait(wait_ns, is_idle, has_slept);
        if (is_idle || !trace_.is_on()) return;
        trace_.record({.start_ns = start_ns, .duration_ns = wait_ns, .kind = TraceKind::kBubble});
    }

  private:
    static constexpr uint32_t kNotOfAnMoeLayer = UINT32_MAX;

    void trace_stage(TraceKind kind, Descriptors descriptors, size_t num_rows, uint64_t now_ns) {
        for (const schedule::ReadyDescriptor& descriptor : descriptors) {
            trace_.record({.start_ns = stage_ns_,
                           .duration_ns = now_ns - stage_ns_,
                           .kind = kind,
                           .micro_batch = static_cast<uint8_t>(descriptor.micro_batch),
                           .session = static_cast<uint16_t>(descriptor.session),
                           .layer = static_cast<uint32_t>(descriptor.layer_id),
                           .num_rows = static_cast<uint32_t>(num_rows),
                           .round = descriptor.round});
        }
    }
    void count_expert(size_t key, uint64_t num_rows) {
        const uint32_t expert = expert_of_key_[key];
        if (expert != kNotOfAnMoeLayer) metrics_.add_expert_rows(expert, num_rows);
    }
    void count_rows(uint64_t num_rows) {
        metrics_.add(Counter::kTokens, num_rows);
        metrics_.add(Counter::kRows, num_rows);
    }

    Metrics metrics_;
    TraceRing trace_;
    std::vector<uint32_t> expert_of_key_;  // Logical, by layer · local experts + local id.
    uint64_t start_ns_ = 0;
    uint64_t stage_ns_ = 0;
    bool is_tracing_ = false;  // Of the pass in work.
};

}  // namespace afd::daemon
