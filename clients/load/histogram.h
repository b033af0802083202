// SPDX-License-Identifier: Apache-2.0
#pragma once

// Histogram: counts of non-negative integers over a wide range with three significant digits: a
// bucket is at most 1/1024 of its values wide. Recording costs no allocation. The bucket scheme is
// HdrHistogram's (lowest discernible value 1, 3 digits): values below 2,048 are exact, and each
// doubling above is cut into 1,024 equal buckets.

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace afd::client {

class Histogram {
  public:
    // 2^42 microseconds are 50 days; a larger value is counted as this one.
    static constexpr int64_t kValueMax = (int64_t{1} << 42) - 1;

    Histogram();

    // Negative values count as 0.
    void record(int64_t value, uint64_t count = 1);
    void merge(const Histogram& other);

    uint64_t count() const { return count_; }
    int64_t min() const { return count_ == 0 ? 0 : min_; }  // Exact.
    int64_t max() const { return max_; }                    // Exact.
    double mean() const;                                    // Of the recorded values, exact.

    // The smallest bucket such that at least `percentile` percent of the values are in it or
    // below (nearest rank); its highest value, but never above max(). 0 without values.
    // REQUIRES: percentile in (0, 100].
    int64_t value_at(double percentile) const;

    // (highest value of the bucket, count) of every bucket that is not empty, ascending.
    std::vector<std::pair<int64_t, uint64_t>> buckets() const;

  private:
    static size_t bucket_of(int64_t value);
    static int64_t highest_value_of(size_t bucket);

    std::vector<uint64_t> counts_;
    uint64_t count_ = 0;
    int64_t min_ = kValueMax;
    int64_t max_ = 0;
    double sum_ = 0;
};

}  // namespace afd::client
