// SPDX-License-Identifier: Apache-2.0

#include "tests/ops/test_data.h"

#include "tests/ops/random_values.h"

namespace afd::ops::test {

RandomMatrix::RandomMatrix(size_t rows, size_t cols, uint32_t seed, float deviation)
    : values(rows * cols), num_rows(rows), num_cols(cols) {
    RandomValues random(seed, deviation);
    for (Bf16& value : values) value = from_float(random.next());
}

}  // namespace afd::ops::test
