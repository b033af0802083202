// SPDX-License-Identifier: Apache-2.0
#pragma once

// Sent rows: what a row is on its way to another process, in a window's slot or a two-phase
// segment.
//
//   bf16   [hidden] values
//   int8   [hidden] values, then the row's fp32 scale (ops/linear/quantise.h)
//   fp8    [hidden] values, then the fp32 scales of its blocks (ops/linear/fp8_rows.h)
//
// A bf16 row for somebody who routes by it may bring what its rounding left: behind the values
// [hidden] bf16 of the middle and [hidden] of the low (SplitRows in ops/attention/rms_norm.h).
//
// A row's bytes depend on the row, and on its expert if that has smooth scales, so a row is sent
// again with the same bytes (R3).

#include <cstddef>
#include <span>
#include <vector>

#include "ops/fused_moe/activations.h"
#include "ops/fused_moe/capability.h"
#include "ops/tensor/parallel.h"

namespace afd::ops {

// Bytes of a row, whole 16-bit elements. REQUIRES: `has_rest` only with bf16.
size_t sent_row_bytes(RowDtype dtype, size_t hidden, bool has_rest = false);

// The same as elements of Bf16: what operators that copy rows take for their H.
inline size_t sent_row_elements(RowDtype dtype, size_t hidden) {
    return sent_row_bytes(dtype, hidden) / sizeof(Bf16);
}

// Writes the row x [hidden] to `row` [sent_row_bytes]. A byte that pads it is left alone. `smooth`
// [hidden] or null: what int8 rows are multiplied by before they are quantised.
void encode_sent_row(
    RowDtype dtype, const Bf16* x, size_t hidden, std::byte* row, const float* smooth = nullptr);

// Makes of rows that arrived what experts take: bf16 rows as they are, of int8 rows the values and
// the scales apart, fp8 rows expanded to bf16. They may hold any bytes.
class ArrivedRows {
  public:
    // Room for rows_max rows.
    ArrivedRows(RowDtype dtype, size_t hidden, size_t rows_max);

    // `rows`: num_rows rows of sent_row_bytes each. The result lives until the next call, and no
    // longer than `rows`. Allocates nothing.
    ActivationRows decode(const std::byte* rows, size_t num_rows, Parallel& parallel);

  private:
    void decode_row(const std::byte* row, size_t index);

    RowDtype dtype_;
    size_t hidden_;
    std::vector<Bf16> bf16_;      // fp8: [rows_max, hidden]
    std::vector<int8_t> values_;  // int8: [rows_max, hidden]
    std::vector<float> scales_;   // int8: [rows_max]
};

}  // namespace afd::ops
