// SPDX-License-Identifier: Apache-2.0

#include "ops/fused_moe/dispatch_rows.h"

#include "ops/linear/fp8_rows.h"
#include "ops/linear/quantise.h"
#include "ops/tensor/row_tasks.h"

namespace afd::ops {

Capacity DispatchRows::memory(RowDtype dtype, size_t hidden, size_t num_tokens) {
    const Capacity rows(num_tokens);
    switch (dtype) {
        case RowDtype::kBf16:
            return {};
        case RowDtype::kInt8:
            return bytes_of<int8_t>(rows * hidden) + bytes_of<float>(rows);
        case RowDtype::kFp8:
            return bytes_of<Bf16>(rows * hidden);
    }
    return {};
}

DispatchRows::DispatchRows(RowDtype dtype,
                           size_t hidden,
                           size_t num_tokens,
                           WorkspaceCursor& cursor)
    : dtype_(dtype), hidden_(hidden) {
    if (dtype == RowDtype::kFp8) rounded_ = cursor.take<Bf16>(num_tokens * hidden);
    if (dtype != RowDtype::kInt8) return;
    values_ = cursor.take<int8_t>(num_tokens * hidden);
    scales_ = cursor.take<float>(num_tokens);
}

void DispatchRows::convert(const Bf16* x, size_t row) {
    if (dtype_ == RowDtype::kInt8) {
        scales_[row] = quantise_row(DType::kBf16, x, nullptr, hidden_, values_ + row * hidden_);
    } else {
        // To fp8 and back: within a process the experts get the values that would have arrived
        // elsewhere.
        round_row_to_fp8(x, hidden_, rounded_ + row * hidden_);
    }
}

ActivationRows DispatchRows::prepare(Rows<const Bf16> x,
                                     Parallel& parallel,
                                     StageProfile* profile) {
    if (dtype_ == RowDtype::kBf16) return {.bf16 = x};
    const StageTimer timer(profile, MoeStage::kQuantise);
    for_rows(parallel, x.num_rows, hidden_, [&](size_t first, size_t last, unsigned) {
        for (size_t row = first; row < last; ++row) convert(x.row(row), row);
    });
    if (dtype_ == RowDtype::kFp8) {
        return {.bf16 = make_rows<const Bf16>(rounded_, x.num_rows, hidden_)};
    }
    return {.int8 = {make_rows<const int8_t>(values_, x.num_rows, hidden_), scales_}};
}

}  // namespace afd::ops
