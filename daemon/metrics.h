// SPDX-License-Identifier: Apache-2.0
#pragma once

// WorkerMetrics: what a worker has done, counted by its data thread in its own metrics segment and
// read by afdd for `afdctl status`.
//
// One writer (the data thread), any number of readers that map the segment read-only. Counters
// only grow during the life of a process and start anew with its successor. Each is a word of its
// own: a reader gets every value whole, but not all of one moment.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "proto/check.h"

namespace afd::daemon {

enum class Counter : uint32_t {
    kTokens = 0,              // Attention: tokens sampled. FFN: rows computed.
    kRounds = 1,              // Attention: rounds published. FFN: descriptors acknowledged.
    kSteps = 2,               // Attention: micro-batches carried through all layers. FFN: passes.
    kRows = 3,                // Attention: rows (positions) computed. FFN: as kTokens.
    kWaits = 4,               // Times the data thread found nothing to do.
    kRefused = 5,             // FFN: descriptors and ids that failed validation, or R11.
    kComputeUs = 6,           // Time in operators.
    kSequences = 7,           // Attention: sequences running now (goes down, too).
    kKvTokens = 8,            // Attention: tokens reserved in the KV cache now (goes down, too).
    kTwoPhaseRounds = 9,      // Attention: rounds in two phases that were combined.
    kTwoPhaseFallbacks = 10,  // Attention: batches that found no memory and went by windows.
    kExperts = 11,  // Attention: routed experts that the rows of its rounds chose, each round's
                    // distinct ones: how often an expert's weights had to be read. Only where it
                    // has the router.
    kCount = 12,
};

// Writer's side, over the bytes of a metrics segment.
class MetricsWriter {
  public:
    MetricsWriter() = default;
    explicit MetricsWriter(std::byte* segment) : words_(reinterpret_cast<uint64_t*>(segment)) {}

    // Sets every counter to zero: a new process starts to count.
    void start() {
        for (uint32_t i = 0; i < static_cast<uint32_t>(Counter::kCount); ++i) {
            set(static_cast<Counter>(i), 0);
        }
    }
    void add(Counter counter, uint64_t amount) { set(counter, get(counter) + amount); }
    void set(Counter counter, uint64_t value) {
        // Relaxed: a count that orders nothing; partner is read_metric's relaxed load.
        word(counter).store(value, std::memory_order_relaxed);
    }
    uint64_t get(Counter counter) const {
        // Own last store.
        return word(counter).load(std::memory_order_relaxed);
    }

  private:
    std::atomic_ref<uint64_t> word(Counter counter) const {
        return std::atomic_ref<uint64_t>(words_[static_cast<uint32_t>(counter)]);
    }

    uint64_t* words_ = nullptr;
};

// Reader's side: one counter out of a segment that is mapped read-only.
inline uint64_t read_metric(const std::byte* segment, Counter counter) {
    const auto* words = reinterpret_cast<const uint64_t*>(segment);
    const std::atomic_ref<uint64_t> word(
        const_cast<uint64_t&>(words[static_cast<uint32_t>(counter)]));
    // Relaxed: partner is MetricsWriter::set's relaxed store.
    return word.load(std::memory_order_relaxed);
}

}  // namespace afd::daemon
