// SPDX-License-Identifier: Apache-2.0
#pragma once

// Seeded random products with weights of any format: a packed matrix, and rows for it.

#include <cstddef>

#include "ops/linear/linear_input.h"
#include "ops/linear/packed_linear.h"
#include "ops/tensor/workspace.h"
#include "tests/ops/linear/quantised_weights.h"
#include "tests/ops/test_data.h"

namespace afd::ops::test {

inline PackedLinear random_packed(WeightFormat format,
                                  size_t num_outputs,
                                  size_t depth,
                                  NumericClass numeric_class) {
    switch (format) {
        case WeightFormat::kBf16:
            return PackedLinear::pack(RandomMatrix(num_outputs, depth, 1).rows(), numeric_class);
        case WeightFormat::kInt8:
            return PackedLinear::pack(RandomInt8(num_outputs, depth, 1).weight(), numeric_class);
        case WeightFormat::kFp8Block128:
            return PackedLinear::pack(RandomFp8(num_outputs, depth, 1).weight(), numeric_class);
        default:
            return PackedLinear::pack(RandomInt4(num_outputs, depth, format, 1).weight(),
                                      numeric_class);
    }
}

// Rows as deep as a matrix, quantised if its weights are int8.
class RandomInput {
  public:
    RandomInput(size_t num_rows, const PackedLinear& weight)
        : x_(num_rows, weight.depth(), 2),
          workspace_(quantised_input_bytes(num_rows, weight.depth())) {
        SerialParallel serial;
        if (weight.format() == WeightFormat::kInt8) {
            input_ = quantised_input(x_.rows(), workspace_.bytes(), serial);
        }
    }
    const LinearInput& input() const { return input_; }

  private:
    RandomMatrix x_;
    Workspace workspace_;
    LinearInput input_{x_.rows()};
};

}  // namespace afd::ops::test
