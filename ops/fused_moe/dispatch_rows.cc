// SPDX-License-Identifier: Apache-2.0

#include "ops/fused_moe/dispatch_rows.h"

#include <algorithm>

#include "ops/quantise.h"

namespace afd::ops {
namespace {

// Elements that one task quantises: some microseconds of work.
constexpr size_t kElementsPerTask = size_t{1} << 16;

}  // namespace

Capacity DispatchRows::memory(const FusedMoeConfig& config, size_t num_tokens) {
    if (!config.quantised_dispatch) return {};
    const Capacity rows(num_tokens);
    return bytes_of<int8_t>(rows * config.hidden) + bytes_of<float>(rows);
}

DispatchRows::DispatchRows(const FusedMoeConfig& config,
                           size_t num_tokens,
                           WorkspaceCursor& cursor) {
    if (!config.quantised_dispatch) return;
    values_ = cursor.take<int8_t>(num_tokens * config.hidden);
    scales_ = cursor.take<float>(num_tokens);
}

ActivationRows DispatchRows::prepare(Rows<const Bf16> x,
                                     Parallel& parallel,
                                     StageProfile* profile) {
    if (scales_ == nullptr) return {.bf16 = x};
    const StageTimer timer(profile, MoeStage::kQuantise);
    const size_t rows_per_task = kElementsPerTask / std::max<size_t>(x.num_cols, 1) + 1;
    const auto quantise = [&](size_t task, unsigned) {
        const size_t last = std::min(x.num_rows, (task + 1) * rows_per_task);
        for (size_t row = task * rows_per_task; row < last; ++row) {
            scales_[row] = quantise_row(
                DType::kBf16, x.row(row), nullptr, x.num_cols, &values_[row * x.num_cols]);
        }
    };
    const size_t num_tasks = (x.num_rows + rows_per_task - 1) / rows_per_task;
    if (num_tasks == 1) {
        quantise(0, 0);
    } else if (num_tasks > 1) {
        parallel.run(num_tasks, quantise);
    }
    return {.int8 = {make_rows<const int8_t>(values_, x.num_rows, x.num_cols), scales_}};
}

}  // namespace afd::ops
