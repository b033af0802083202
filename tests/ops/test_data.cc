// SPDX-License-Identifier: Apache-2.0

#include "tests/ops/test_data.h"

#include <random>

namespace afd::ops::test {

RandomMatrix::RandomMatrix(size_t rows, size_t cols, uint32_t seed, float deviation)
    : values(rows * cols), num_rows(rows), num_cols(cols) {
    std::mt19937 engine(seed);
    std::normal_distribution<float> normal(0.0f, deviation);
    for (Bf16& value : values) value = from_float(normal(engine));
}

}  // namespace afd::ops::test
