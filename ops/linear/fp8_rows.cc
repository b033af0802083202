// SPDX-License-Identifier: Apache-2.0

#include "ops/linear/fp8_rows.h"

#include <algorithm>
#include <array>

#include "ops/cpu/kernels.h"

namespace afd::ops {

void encode_fp8_row(const Bf16* x, size_t count, std::byte* row) {
    cpu::best_kernels().encode_fp8(x, count, row);
}

void round_row_to_fp8(const Bf16* x, size_t count, Bf16* y) {
    // Block by block on the stack: a block has its own scale and depends on no other.
    std::array<std::byte, fp8_row_bytes(kFp8BlockValues)> block;
    for (size_t first = 0; first < count; first += kFp8BlockValues) {
        const size_t num_values = std::min(kFp8BlockValues, count - first);
        encode_fp8_row(x + first, num_values, block.data());
        expand_fp8_row(block.data(), num_values, y + first);
    }
}

void expand_fp8_row(const std::byte* row, size_t count, Bf16* x) {
    cpu::best_kernels().expand_fp8({.values = row, .scales = row + count, .count = count}, x);
}

}  // namespace afd::ops
