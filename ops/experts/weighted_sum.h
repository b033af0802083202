// SPDX-License-Identifier: Apache-2.0
#pragma once

// The weighted sum of a token's rows: the one loop behind ops/experts/combine.h and
// MoeFinalizeRouting, and through them behind every way back. Internal to ops/.
//
// In fp32, one operation after the other: what stands in the sum before the slots, then for each
// slot in order sum = sum + weight·(row + bias), product rounded and then the sum; →T once.

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include "ops/cpu/kernels.h"
#include "ops/format/numeric_class.h"
#include "ops/tensor/bf16.h"
#include "ops/tensor/fp16.h"

namespace afd::ops {

// Columns summed at once: the accumulators stay in registers and the first-level cache.
inline constexpr size_t kSumColumns = 256;

template <typename T>
class WeightedSum {
  public:
    // Columns [first, first + count) of all rows; count <= kSumColumns.
    WeightedSum(size_t first, size_t count) : first_(first), count_(count) {}

    // What the sum begins with; without it, +0.
    void start(const T* row) {
        for (size_t i = 0; i < count_; ++i) sums_[i] = to_float(row[first_ + i]);
    }
    void add(const T* row) {
        for (size_t i = 0; i < count_; ++i) sums_[i] = sums_[i] + to_float(row[first_ + i]);
    }
    void add(const T* row, float weight) {
        if constexpr (std::is_same_v<T, Bf16>) {
            return kernels_.add_weighted_row(row + first_, weight, count_, sums_);
        }
        for (size_t i = 0; i < count_; ++i) {
            sums_[i] = sums_[i] + weight * to_float(row[first_ + i]);
        }
    }
    void add(const T* row, const T* bias, float weight) {
        for (size_t i = 0; i < count_; ++i) {
            const float biased = to_float(row[first_ + i]) + to_float(bias[first_ + i]);
            sums_[i] = sums_[i] + weight * biased;
        }
    }
    void store(T* out) const {
        if constexpr (std::is_same_v<T, Bf16>) {
            return kernels_.store_sums(sums_, count_, out + first_);
        }
        for (size_t i = 0; i < count_; ++i) out[first_ + i] = round_to<T>(sums_[i]);
    }

  private:
    // Of bf16 rows; every class has the same bits here.
    const cpu::ResidualKernels& kernels_ = cpu::best_kernels().residual;
    size_t first_;
    size_t count_;
    float sums_[kSumColumns] = {};
};

// out [num_columns] from body(sum), which adds a token's rows to it; called block by block.
template <typename T, typename Body>
void weighted_sum(size_t num_columns, T* out, const Body& body) {
    for (size_t first = 0; first < num_columns; first += kSumColumns) {
        WeightedSum<T> sum(first, std::min(kSumColumns, num_columns - first));
        body(sum);
        sum.store(out);
    }
}

}  // namespace afd::ops
