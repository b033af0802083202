// SPDX-License-Identifier: Apache-2.0
#pragma once

// ExpertWeights: many copies of one random expert, for benchmarks that need weights from memory.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ops/experts/grouped_ffn.h"

namespace afd::bench {

struct ExpertShape {
    size_t hidden;
    size_t intermediate;
    ops::WeightFormat format;
    ops::NumericClass numeric_class = ops::best_numeric_class();  // Of ours.
    ops::Int4Rows int4_rows = ops::Int4Rows::kBf16;

    // Whose multiplier the products run on.
    ops::WeightFormat peak_format() const {
        return int4_rows == ops::Int4Rows::kInt8 ? ops::WeightFormat::kInt8 : format;
    }
};

// The random expert of a shape before it is packed, of bf16 or int8: gate and up are the same
// matrix [intermediate, hidden], and down is the same values as [hidden, intermediate].
struct PlainExpert {
    std::vector<ops::Bf16> bf16;
    std::vector<int8_t> int8;
    std::vector<float> scale;  // Of int8: of every output of every matrix.
};
PlainExpert plain_expert(const ExpertShape& shape);

class ExpertWeights {
  public:
    // The copies lie one behind the other.
    ExpertWeights(const ExpertShape& shape, size_t num_experts);
    ~ExpertWeights();
    ExpertWeights(const ExpertWeights&) = delete;
    ExpertWeights& operator=(const ExpertWeights&) = delete;

    const ops::ExpertTable& table() const { return table_; }
    size_t num_experts() const { return table_.num_keys(); }
    // Bytes of one expert.
    size_t expert_bytes() const { return expert_bytes_; }

  private:
    std::span<std::byte> memory_;
    size_t expert_bytes_ = 0;
    ops::ExpertTable table_;
};

}  // namespace afd::bench
