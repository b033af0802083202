// SPDX-License-Identifier: Apache-2.0
#include "ops/attention/kv_tiles.h"

#include <algorithm>
#include <cstring>

#include "ops/cpu/kernels.h"
#include "ops/linear/fp8_rows.h"
#include "ops/linear/quantise.h"
#include "proto/check.h"

namespace afd::ops {

void encode_int8_tiles(DType dtype, const void* v, size_t count, std::byte* q, std::byte* scales) {
    const size_t step = size_of(dtype);
    for (size_t first = 0; first < count; first += kKvTile) {
        const float scale = quantise_row(dtype,
                                         static_cast<const std::byte*>(v) + first * step,
                                         nullptr,
                                         std::min(kKvTile, count - first),
                                         reinterpret_cast<int8_t*>(q + first));
        std::memcpy(scales + first / kKvTile * sizeof scale, &scale, sizeof scale);
    }
}

void expand_int8_tiles(const std::byte* q, const std::byte* scales, size_t count, Bf16* v) {
    const cpu::Kernels& kernels = cpu::kernels(best_numeric_class());
    for (size_t first = 0; first < count; first += kKvTile) {
        float scale = 0;
        std::memcpy(&scale, scales + first / kKvTile * sizeof scale, sizeof scale);
        kernels.expand_int8(reinterpret_cast<const int8_t*>(q + first),
                            scale,
                            std::min(kKvTile, count - first),
                            v + first);
    }
}

void encode_kv_row(KvDtype dtype, const Bf16* v, size_t count, std::byte* row) {
    AFD_DASSERT(dtype != KvDtype::kBf16, "bf16 rows have no tiles");
    if (dtype == KvDtype::kFp8) return encode_fp8_row(v, count, row);
    encode_int8_tiles(DType::kBf16, v, count, row, row + count);
}

void expand_kv_row(KvDtype dtype, const std::byte* row, size_t count, Bf16* v) {
    AFD_DASSERT(dtype != KvDtype::kBf16, "bf16 rows have no tiles");
    if (dtype == KvDtype::kFp8) return expand_fp8_row(row, count, v);
    expand_int8_tiles(row, row + count, count, v);
}

}  // namespace afd::ops
