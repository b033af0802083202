// SPDX-License-Identifier: Apache-2.0

#include "ops/fused_moe/sent_rows.h"

#include <cstring>

#include "ops/linear/fp8_rows.h"
#include "ops/linear/quantise.h"
#include "ops/tensor/row_tasks.h"
#include "proto/check.h"

namespace afd::ops {

size_t sent_row_bytes(RowDtype dtype, size_t hidden, bool has_rest) {
    AFD_ASSERT(!has_rest || dtype == RowDtype::kBf16, "only bf16 rows bring a rest");
    // An even number of bytes: a row travels as so many bf16 elements, whatever is in it.
    const auto whole = [](size_t bytes) { return bytes + bytes % sizeof(Bf16); };
    switch (dtype) {
        case RowDtype::kBf16:
            return (has_rest ? 3 : 1) * hidden * sizeof(Bf16);
        case RowDtype::kInt8:
            return whole(hidden + sizeof(float));
        case RowDtype::kFp8:
            return whole(fp8_row_bytes(hidden));
    }
    return 0;
}

void encode_sent_row(
    RowDtype dtype, const Bf16* x, size_t hidden, std::byte* row, const float* smooth) {
    switch (dtype) {
        case RowDtype::kBf16:
            std::memcpy(row, x, hidden * sizeof(Bf16));
            return;
        case RowDtype::kInt8: {
            const float scale =
                quantise_row(DType::kBf16, x, smooth, hidden, reinterpret_cast<int8_t*>(row));
            std::memcpy(row + hidden, &scale, sizeof(scale));
            return;
        }
        case RowDtype::kFp8:
            encode_fp8_row(x, hidden, row);
            return;
    }
}

ArrivedRows::ArrivedRows(RowDtype dtype, size_t hidden, size_t rows_max)
    : dtype_(dtype), hidden_(hidden) {
    if (dtype == RowDtype::kFp8) bf16_.resize(rows_max * hidden);
    if (dtype != RowDtype::kInt8) return;
    values_.resize(rows_max * hidden);
    scales_.resize(rows_max);
}

ActivationRows ArrivedRows::decode(const std::byte* rows, size_t num_rows, Parallel& parallel) {
    if (dtype_ == RowDtype::kBf16) {
        const void* values = rows;
        return {.bf16 = make_rows(static_cast<const Bf16*>(values), num_rows, hidden_)};
    }
    const size_t row_bytes = sent_row_bytes(dtype_, hidden_);
    for_rows(parallel, num_rows, hidden_, [&](size_t first, size_t last, unsigned) {
        for (size_t i = first; i < last; ++i) decode_row(rows + i * row_bytes, i);
    });
    if (dtype_ == RowDtype::kFp8) {
        return {.bf16 = make_rows<const Bf16>(bf16_.data(), num_rows, hidden_)};
    }
    return {.int8 = {make_rows<const int8_t>(values_.data(), num_rows, hidden_), scales_.data()}};
}

void ArrivedRows::decode_row(const std::byte* row, size_t index) {
    if (dtype_ == RowDtype::kFp8) {
        expand_fp8_row(row, hidden_, &bf16_[index * hidden_]);
        return;
    }
    std::memcpy(&values_[index * hidden_], row, hidden_);
    // By bytes: behind an odd number of int8 values the scale is not aligned.
    std::memcpy(&scales_[index], row + hidden_, sizeof(float));
}

}  // namespace afd::ops
