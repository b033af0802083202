// SPDX-License-Identifier: Apache-2.0
#pragma once

// Values of a quantised KV cache to their tiles and back. A tile's bits depend on its values alone,
// and are the same in every numeric class.
//
//   int8: s = max|v| / 127; q = rint(v / s), half to even: section 9 of docs/specification.md on
//         a tile, and mla_prolog_v3's per tile with a k_nope_clip_alpha of 1
//   read: (float(q) · s) →bf16
// fp8: ops/format/fp8_layout.h, likewise. A tile with a NaN or infinity in it reads as NaN.

#include <cstddef>

#include "ops/cpu/quantised_rows.h"
#include "ops/format/kv_dtype.h"
#include "ops/tensor/bf16.h"
#include "ops/tensor/tensor_view.h"

namespace afd::ops {

// v is bf16 or fp32. q [count] values, scales [num_kv_tiles(count)] fp32, both at any address.
void encode_int8_tiles(DType dtype, const void* v, size_t count, std::byte* q, std::byte* scales);

// Values and then their scales, kv_tile_row_bytes(count). REQUIRES: dtype is not bf16.
void encode_kv_row(KvDtype dtype, const Bf16* v, size_t count, std::byte* row);
// To where row `row` of keys in KeyOrder::kPairs (ops/format/gqa_cache.h) stands.
void encode_key_pairs(KvDtype dtype, const Bf16* key, size_t count, size_t row, std::byte* keys);

// v [num_rows, count].
void expand_kv_rows(KvDtype dtype, const cpu::QuantisedRows& rows, Bf16* v);
// v [count / 2][kAttentionBlock][2]. The bits are those of rows.
void expand_key_pairs(KvDtype dtype, const cpu::QuantisedKeyPairs& keys, Bf16* v);

}  // namespace afd::ops
