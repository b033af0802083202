// SPDX-License-Identifier: Apache-2.0
#include "clients/load/histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "proto/check.h"

namespace afd::client {
namespace {

// Eleven significant bits: a bucket is at most a 1,024th of its values wide.
constexpr int kSubBucketBits = 10;
constexpr size_t kSubBuckets = size_t{1} << kSubBucketBits;

}  // namespace

Histogram::Histogram() : counts_(bucket_of(kValueMax) + 1) {}

size_t Histogram::bucket_of(int64_t value) {
    // The bits above the eleven that are kept; none for values below 2,048.
    const int width = 64 - std::countl_zero(static_cast<uint64_t>(value));
    const int shift = std::max(0, width - (kSubBucketBits + 1));
    return (static_cast<size_t>(shift) << kSubBucketBits) + static_cast<size_t>(value >> shift);
}

int64_t Histogram::highest_value_of(size_t bucket) {
    if (bucket < 2 * kSubBuckets) return static_cast<int64_t>(bucket);
    const size_t shift = (bucket >> kSubBucketBits) - 1;
    const size_t kept = bucket - (shift << kSubBucketBits);
    return static_cast<int64_t>((kept + 1) << shift) - 1;
}

void Histogram::record(int64_t value, uint64_t count) {
    if (count == 0) return;
    value = std::clamp<int64_t>(value, 0, kValueMax);
    counts_[bucket_of(value)] += count;
    count_ += count;
    min_ = std::min(min_, value);
    max_ = std::max(max_, value);
    sum_ += static_cast<double>(value) * static_cast<double>(count);
}

void Histogram::merge(const Histogram& other) {
    for (size_t i = 0; i < counts_.size(); ++i) counts_[i] += other.counts_[i];
    count_ += other.count_;
    min_ = std::min(min_, other.min_);
    max_ = std::max(max_, other.max_);
    sum_ += other.sum_;
}

double Histogram::mean() const {
    return count_ == 0 ? 0 : sum_ / static_cast<double>(count_);
}

int64_t Histogram::value_at(double percentile) const {
    AFD_ASSERT(percentile > 0 && percentile <= 100, "percentile %f", percentile);
    if (count_ == 0) return 0;
    // 99.9 / 100 is no exact number: without the small term a whole rank could be rounded up.
    const double rank = percentile / 100 * static_cast<double>(count_);
    const auto wanted = std::max<uint64_t>(1, static_cast<uint64_t>(std::ceil(rank - 1e-6)));
    uint64_t seen = 0;
    for (size_t i = 0; i < counts_.size(); ++i) {
        seen += counts_[i];
        if (seen >= wanted) return std::min(highest_value_of(i), max_);
    }
    return max_;
}

std::vector<std::pair<int64_t, uint64_t>> Histogram::buckets() const {
    std::vector<std::pair<int64_t, uint64_t>> result;
    for (size_t i = 0; i < counts_.size(); ++i) {
        if (counts_[i] > 0) result.emplace_back(highest_value_of(i), counts_[i]);
    }
    return result;
}

}  // namespace afd::client
