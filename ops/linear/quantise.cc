// SPDX-License-Identifier: Apache-2.0

#include "ops/linear/quantise.h"

#include <algorithm>
#include <bit>

#include "ops/cpu/kernels.h"
#include "ops/tensor/float_dispatch.h"
#include "ops/tensor/math.h"
#include "ops/tensor/row_tasks.h"
#include "proto/check.h"

namespace afd::ops {
namespace {

// So many results are more than a core's caches keep: they go past them, which saves reading the
// lines that they overwrite.
constexpr size_t kStreamedElements = size_t{8} << 20;

// Rows that follow each other.
void quantise(DType dtype,
              const void* x,
              const float* smooth,
              size_t num_rows,
              size_t count,
              int8_t* q,
              float* scale,
              bool is_streamed) {
    const cpu::Kernels& kernels = cpu::best_kernels();
    switch (dtype) {
        case DType::kBf16:
            return kernels.quantise_bf16(
                static_cast<const Bf16*>(x), smooth, num_rows, count, q, scale, is_streamed);
        case DType::kFp16:
            return kernels.quantise_fp16(
                static_cast<const Fp16*>(x), smooth, num_rows, count, q, scale, is_streamed);
        default:
            AFD_ASSERT(dtype == DType::kFp32, "dtype %d", static_cast<int>(dtype));
            return kernels.quantise_fp32(
                static_cast<const float*>(x), smooth, num_rows, count, q, scale, is_streamed);
    }
}

}  // namespace

float quantise_row(DType dtype, const void* x, const float* smooth, size_t count, int8_t* q) {
    float scale;
    quantise(dtype, x, smooth, 1, count, q, &scale, false);
    return scale;
}

void quantise_row_static(
    DType dtype, const void* x, float scale, float offset, size_t count, int8_t* q) {
    with_float_type(dtype, [&](auto zero) {
        const auto* values = static_cast<const decltype(zero)*>(x);
        for (size_t i = 0; i < count; ++i) {
            float t = to_float(values[i]) * scale;
            t = t + offset;
            t = t < -128.0f ? -128.0f : t;
            t = t > 127.0f ? 127.0f : t;
            // Behind the clips, whose comparisons are false for NaN and let it through.
            t = t == t ? t : 0.0f;
            q[i] = static_cast<int8_t>(std::bit_cast<int32_t>(t + kIntegerRounder) -
                                       kIntegerRounderBits);
        }
    });
}

void quantise_rows(const QuantiseRequest& request, Parallel& parallel) {
    const size_t num_rows = request.x.shape[0];
    const size_t hidden = request.x.shape[1];
    const size_t row_bytes = hidden * size_of(request.x.dtype);
    // By the whole call, since all threads' results share the caches.
    const bool is_streamed = num_rows * hidden >= kStreamedElements;
    for_rows(parallel, num_rows, hidden, [&](size_t first, size_t last, unsigned) {
        quantise(request.x.dtype,
                 static_cast<const std::byte*>(request.x.data) + first * row_bytes,
                 request.smooth,
                 last - first,
                 hidden,
                 request.q + first * hidden,
                 request.scale + first,
                 is_streamed);
    });
}

}  // namespace afd::ops
