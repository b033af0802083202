// SPDX-License-Identifier: Apache-2.0
#pragma once

// ScaleRows, the example of docs/adding/operator.md: every row times its own factor.
//
//   y[n] = x[n]·(factors[n]·gain) →dtype of x, or with mode 1 x[n]·factors[n] + gain
//
// In fp32, each operation rounded on its own, then once to the dtype.

#include <cstddef>
#include <cstdint>
#include <span>

#include "ops/record/operator_spec.h"
#include "ops/tensor/parallel.h"
#include "ops/tensor/tensor_view.h"
#include "proto/status.h"

namespace afd::ops::example {

struct ScaleRowsRequest {
    int64_t mode = 0;  // 0 gain multiplies the factors, 1 it is added
    float gain = 1.0f;

    ConstTensorView x;             // [N, H] bf16 or fp32
    ConstTensorView factors = {};  // [N] fp32; not given: 1

    TensorView y;  // [N, H], dtype of x
};

extern const RecordOf<ScaleRowsRequest> kScaleRowsSpec;

// Everything that a request can be refused for.
Result<> check_scale_rows(const ScaleRowsRequest& request);

// Needs no scratch.
constexpr size_t scale_rows_workspace_bytes() {
    return 0;
}

// Errors: kInvalidArgument; then nothing was written. Bits do not depend on the threads.
Result<> scale_rows(const ScaleRowsRequest& request,
                    std::span<std::byte> workspace,
                    Parallel& parallel);

}  // namespace afd::ops::example
