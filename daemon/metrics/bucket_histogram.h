// SPDX-License-Identifier: Apache-2.0
#pragma once

// BucketHistogram: counts of values below given bounds, as Prometheus exposes them. For what afdd
// itself measures; what workers measure in shared memory is a MetricHistogram.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace afd::daemon {

class BucketHistogram {
  public:
    // REQUIRES: `bounds` ascend.
    explicit BucketHistogram(std::vector<double> bounds)
        : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}

    void record(double value) {
        const auto bound = std::lower_bound(bounds_.begin(), bounds_.end(), value);
        ++counts_[static_cast<size_t>(bound - bounds_.begin())];
        sum_ += value;
    }

    const std::vector<double>& bounds() const { return bounds_; }
    // counts()[i] is the number of values above bound i - 1 and not above bound i; the last bucket
    // has no bound.
    const std::vector<uint64_t>& counts() const { return counts_; }
    double sum() const { return sum_; }

  private:
    std::vector<double> bounds_;
    std::vector<uint64_t> counts_;
    double sum_ = 0;
};

}  // namespace afd::daemon
