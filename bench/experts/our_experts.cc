// SPDX-License-Identifier: Apache-2.0

#include "bench/experts/our_experts.h"

#include <cstdint>
#include <random>

#include "proto/check.h"

namespace afd::bench {

OurExperts::OurExperts(const ExpertWeights& weights, size_t num_rows, size_t num_groups)
    : weights_(weights),
      num_rows_(num_rows),
      x_(num_rows * weights.table().hidden()),
      y_(x_.size()),
      workspace_(ops::grouped_ffn_workspace_bytes(weights.table(), num_rows, num_groups)) {
    std::mt19937 engine(1);
    std::normal_distribution<float> normal;
    for (ops::Bf16& value : x_) value = ops::from_float(normal(engine));
}

void OurExperts::run(size_t first_row,
                     std::span<const ops::ExpertGroup> groups,
                     ops::Parallel& parallel) {
    const size_t hidden = weights_.table().hidden();
    const size_t first = first_row * hidden;
    const auto result = ops::grouped_ffn(
        {.experts = &weights_.table(),
         .groups = groups,
         .x = ops::make_rows<const ops::Bf16>(&x_[first], num_rows_ - first_row, hidden),
         .y = ops::make_rows(&y_[first], num_rows_ - first_row, hidden)},
        workspace_.bytes(),
        parallel);
    AFD_ASSERT(result.ok(), "%s", result.error().message.c_str());
}

void OurExperts::run_next(ops::Parallel& parallel) {
    const ops::ExpertGroup group{static_cast<int64_t>(next_), static_cast<int64_t>(num_rows_)};
    run(0, {&group, 1}, parallel);
    next_ = (next_ + 1) % weights_.num_experts();
}

ops::Rows<const ops::Bf16> OurExperts::x() const {
    return ops::make_rows(x_.data(), num_rows_, weights_.table().hidden());
}

ops::Rows<const ops::Bf16> OurExperts::y() const {
    return ops::make_rows(y_.data(), num_rows_, weights_.table().hidden());
}

}  // namespace afd::bench
