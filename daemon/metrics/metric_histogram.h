// SPDX-License-Identifier: Apache-2.0
#pragma once

// MetricHistogram: counts of values in buckets of fixed edges, in shared memory: one writer that
// pays a few relaxed stores for a value, any number of readers.
//
// The first buckets hold one value each; then every octave has four of equal width, so an edge is
// at most a fifth of its value from the next. Values from 2^40 on (nanoseconds: 18 minutes) count
// in the last bucket.

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "schedule/layout/metrics_layout.h"

namespace afd::daemon {

inline constexpr size_t kHistogramBuckets = schedule::kHistogramBuckets;

constexpr size_t histogram_bucket(uint64_t value) {
    if (value < 4) return static_cast<size_t>(value);
    const auto octave = static_cast<size_t>(std::bit_width(value) - 1);
    const size_t bucket = 4 * (octave - 1) + ((value >> (octave - 2)) & 3);
    return std::min(bucket, kHistogramBuckets - 1);
}

// The smallest value of a bucket; of kHistogramBuckets the first value that none has of its own.
constexpr uint64_t histogram_edge(size_t bucket) {
    if (bucket < 4) return bucket;
    return (4 + uint64_t{bucket % 4}) << (bucket / 4 - 1);
}
static_assert(histogram_edge(kHistogramBuckets) == uint64_t{1} << 40);

// What a reader saw. Its words are not all of one moment.
struct HistogramCounts {
    std::array<uint64_t, kHistogramBuckets> buckets{};
    uint64_t count = 0;  // Of all buckets.
    uint64_t sum = 0;
    uint64_t largest = 0;

    void record(uint64_t value);
    // The values of both.
    void add(const HistogramCounts& other);
    // The number of values below `edge`. REQUIRES: it is the edge of a bucket (histogram_edge()).
    uint64_t count_below(uint64_t edge) const;

    double mean() const;
    // The value below which `fraction` of the values are, as if they were spread evenly over
    // their bucket; never above `largest`. 0 without values. REQUIRES: fraction in [0, 1].
    double value_at(double fraction) const;
};

// Words in the segment: sum, largest, two reserved, buckets.
class MetricHistogram {
  public:
    explicit MetricHistogram(uint64_t* words) : words_(words) {}

    // The writer's.
    void record(uint64_t value) const {
        add(schedule::kHistogramHeadWords + histogram_bucket(value), 1);
        add(0, value);
        if (value > load(1)) store(1, value);
    }

    HistogramCounts read() const;

  private:
    uint64_t load(size_t word) const {
        // Relaxed: a count that orders nothing; partner is store().
        return std::atomic_ref<uint64_t>(words_[word]).load(std::memory_order_relaxed);
    }
    void store(size_t word, uint64_t value) const {
        // Relaxed: partner is load().
        std::atomic_ref<uint64_t>(words_[word]).store(value, std::memory_order_relaxed);
    }
    void add(size_t word, uint64_t amount) const { store(word, load(word) + amount); }

    uint64_t* words_;
};

}  // namespace afd::daemon
