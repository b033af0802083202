// SPDX-License-Identifier: Apache-2.0
#include "ops/attention/kv_tiles.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "ops/cpu/kernels.h"
#include "ops/format/gqa_cache.h"
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

void encode_kv_row(KvDtype dtype, const Bf16* v, size_t count, std::byte* row) {
    AFD_DASSERT(dtype != KvDtype::kBf16, "bf16 rows have no tiles");
    if (dtype == KvDtype::kFp8) return encode_fp8_row(v, count, row);
    encode_int8_tiles(DType::kBf16, v, count, row, row + count);
}

void encode_key_pairs(KvDtype dtype, const Bf16* key, size_t count, size_t row, std::byte* keys) {
    const size_t in_block = row % kAttentionBlock;
    std::byte* const block = keys + (row - in_block) * kv_tile_row_bytes(count);
    std::byte* const scales = block + count * kAttentionBlock;
    for (size_t first = 0; first < count; first += kKvTile) {
        const size_t num_values = std::min(kKvTile, count - first);
        std::array<std::byte, kv_tile_row_bytes(kKvTile)> tile;
        encode_kv_row(dtype, key + first, num_values, tile.data());
        for (size_t i = 0; i < num_values; i += 2) {
            std::copy_n(&tile[i], 2, block + key_pair_place(in_block, first + i));
        }
        const size_t place = first / kKvTile * kAttentionBlock + in_block;
        std::copy_n(&tile[num_values], sizeof(float), scales + place * sizeof(float));
    }
}

void expand_kv_rows(KvDtype dtype, const cpu::QuantisedRows& rows, Bf16* v) {
    AFD_DASSERT(dtype == KvDtype::kInt8 || dtype == KvDtype::kFp8, "other rows have no tiles");
    const cpu::Kernels& kernels = cpu::best_kernels();
    (dtype == KvDtype::kFp8 ? kernels.expand_fp8 : kernels.expand_int8)(rows, v);
}

void expand_key_pairs(KvDtype dtype, const cpu::QuantisedKeyPairs& keys, Bf16* v) {
    AFD_DASSERT(dtype == KvDtype::kInt8 || dtype == KvDtype::kFp8, "other keys have no tiles");
    const cpu::Kernels& kernels = cpu::best_kernels();
    (dtype == KvDtype::kFp8 ? kernels.expand_fp8_pairs : kernels.expand_int8_pairs)(keys, v);
}

}  // namespace afd::ops
