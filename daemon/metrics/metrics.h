// SPDX-License-Identifier: Apache-2.0
#pragma once

// Metrics: what a worker has done, counted by its data thread in its own metrics segment
// (schedule/layout/metrics_layout.h) and read by afdd for `afdctl status`.
//
// One writer (the data thread, but for kWeightBytesLeft), any number of readers. Counters and
// histograms only grow during the life of a process and start anew with its successor. Each is a
// word of its own: a reader gets every value whole, but not all of one moment. Nothing here
// allocates or calls the kernel.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "daemon/metrics/metric_histogram.h"
#include "daemon/metrics/trace_ring.h"
#include "proto/check.h"
#include "schedule/layout/metrics_layout.h"

namespace afd::daemon {

enum class Counter : uint32_t {
    kTokens = 0,          // Attention: tokens sampled. FFN: rows computed.
    kRounds = 1,          // Attention: rounds published. FFN: descriptors acknowledged.
    kSteps = 2,           // Attention: micro-batches carried through all layers. FFN: passes.
    kRows = 3,            // Attention: rows (positions) computed. FFN: as kTokens.
    kSpun = 4,            // Waits of the data thread that ended while it still spun.
    kRefused = 5,         // FFN: descriptors and ids that failed validation, or R11.
    kComputeUs = 6,       // Time in operators.
    kSequences = 7,       // Attention: sequences running now (goes down, too).
    kKvTokens = 8,        // Attention: tokens of KV blocks that sequences hold (goes down, too).
    kTwoPhaseRounds = 9,  // Attention: rounds in two phases that were combined.
    kTwoPhaseFallbacks = 10,  // Attention: batches that failed there and went by windows: no
                              // memory, a refusal (R11, R17), or any other error.
    kExperts = 11,   // Attention: routed experts that the rows of its rounds chose, each round's
                     // distinct ones: how often an expert's weights had to be read. Only where it
                     // has the router.
    kTimeouts = 12,  // Attention: micro-batches given up because a round took too long (R7).
    kBubbleNs = 13,  // Of waits: there was work, and it was with a peer.
    kIdleNs = 14,    // Of waits: there was no work.
    kSlept = 15,     // Its other waits.
    kSpinNs = 16,    // Time of kSpun.
    kSleepNs = 17,   // Of kSlept.
    kInFlightNow = 18,       // Attention: micro-batches with the experts now (goes down, too).
    kPrefixQueries = 19,     // Attention: tokens that sequences began with.
    kPrefixHits = 20,        // Attention: of these, those that the prefix cache had.
    kKvWindowedTokens = 21,  // Attention: reserved, in layers with a window (goes down, too).
    kWeightBytesLeft = 22,   // Of mapped experts, not read and checked yet (goes down). Written by
                             // the thread that reads them (daemon/worker/weight_reader.h).
    kBadChoices = 23,        // FFN: choices of a library's scheduler that were none.
    kOverruled = 24,         // FFN: decisions that were taken from it, as it left a round too long.
    kPhaseNs = 32,           // And those that follow, one for each TraceKind: see phase_counter().
    kCount = kPhaseNs + kTraceKinds,
};
static_assert(static_cast<uint64_t>(Counter::kCount) <= schedule::kMetricsCounters);

// Time in one kind of work. There is none for kWait and kBubble, which are no work.
constexpr Counter phase_counter(TraceKind kind) {
    return static_cast<Counter>(static_cast<uint32_t>(Counter::kPhaseNs) +
                                static_cast<uint32_t>(kind));
}

enum class Histogram : uint32_t {
    kStepNs = 0,    // Attention: a micro-batch from its embedding to its sampled tokens.
    kInFlight = 1,  // Attention: micro-batches with the experts, at each dispatch, that included.
    kAgeNs = 2,     // FFN: of a descriptor, from the scan that found it to the pass that takes it.
    kPassNs = 3,    // FFN: from taking a pass to acknowledging it.
    kPassRows = 4,  // FFN: rows of a pass.
    kPassDescriptors = 5,  // FFN: descriptors of a pass, each of another session.
    kReady = 6,            // FFN: descriptors that were ready when a pass was taken.
    kStepRows = 7,         // Attention: rows of a step.
    kCount = 8,
};
static_assert(static_cast<uint64_t>(Histogram::kCount) <= schedule::kMetricsHistograms);

// A metrics segment, for its writer or for a reader, who may set the trace switch.
class Metrics {
  public:
    Metrics() = default;
    explicit Metrics(std::span<std::byte> segment)
        : segment_(segment.data()), size_(segment.size()) {}

    // Sets everything but the trace to zero: a new process starts to count.
    void start() {
        for (size_t offset = 0; offset < size_; offset += sizeof(uint64_t)) {
            if (offset == schedule::kTraceSwitchOffset) offset = schedule::kMetricsHistogramsOffset;
            if (offset == schedule::kTraceHeadOffset) offset = schedule::kMetricsLanesOffset;
            if (offset < size_) store(offset, 0);
        }
    }

    void add(Counter counter, uint64_t amount) { set(counter, get(counter) + amount); }
    // The time that all phases took together.
    uint64_t busy_ns() const {
        uint64_t sum = 0;
        for (uint8_t kind = 0; kind < kTraceKinds; ++kind) {
            sum += get(phase_counter(static_cast<TraceKind>(kind)));
        }
        return sum;
    }
    // A wait of the data thread is over. `is_idle`: it had no work.
    void add_wait(uint64_t wait_ns, bool is_idle, bool has_slept) {
        add(has_slept ? Counter::kSlept : Counter::kSpun, 1);
        add(is_idle ? Counter::kIdleNs : Counter::kBubbleNs, wait_ns);
        add(has_slept ? Counter::kSleepNs : Counter::kSpinNs, wait_ns);
    }

    void set(Counter counter, uint64_t value) { store(offset_of(counter), value); }
    uint64_t get(Counter counter) const { return load(offset_of(counter)); }

    MetricHistogram histogram(Histogram histogram) const {
        return MetricHistogram(words(schedule::kMetricsHistogramsOffset +
                                     static_cast<uint64_t>(histogram) * schedule::kHistogramBytes));
    }

    // Attention: nanoseconds from publishing a round to all results of an FFN worker, as far as
    // this worker looked.
    MetricHistogram peer_wait(uint32_t rank) const {
        return MetricHistogram(
            words(schedule::kMetricsLanesOffset + uint64_t{rank} * schedule::kHistogramBytes));
    }

    // FFN: rows that the rank computed for a logical expert in all MoE layers. By logical and not
    // by local id, which may name another expert in each layer.
    uint64_t expert_rows(size_t expert) const { return load(expert_offset(expert)); }
    void add_expert_rows(size_t expert, uint64_t num_rows) {
        store(expert_offset(expert), expert_rows(expert) + num_rows);
    }

    TraceRing trace() const { return TraceRing(segment_); }

  private:
    static uint64_t offset_of(Counter counter) { return static_cast<uint64_t>(counter) * 8; }
    static uint64_t expert_offset(size_t expert) {
        return schedule::kMetricsLanesOffset + expert * sizeof(uint64_t);
    }
    uint64_t* words(uint64_t offset) const {
        AFD_ASSERT(
            offset < size_, "offset %llu of %zu", static_cast<unsigned long long>(offset), size_);
        return reinterpret_cast<uint64_t*>(segment_ + offset);
    }
    uint64_t load(uint64_t offset) const {
        // Relaxed: a count that orders nothing; partner is store().
        return std::atomic_ref<uint64_t>(*words(offset)).load(std::memory_order_relaxed);
    }
    void store(uint64_t offset, uint64_t value) {
        // Relaxed: partner is load().
        std::atomic_ref<uint64_t>(*words(offset)).store(value, std::memory_order_relaxed);
    }

    std::byte* segment_ = nullptr;
    size_t size_ = 0;
};

}  // namespace afd::daemon
