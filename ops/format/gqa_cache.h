// SPDX-License-Identifier: Apache-2.0
#pragma once

// GqaShape and GqaCache: attention whose query heads share heads of keys and values (grouped-query
// attention; with as many of both it is multi-head attention), and one layer's paged cache of it:
// the slots of ops/format/attention_batch.h, keys rotated. Memory belongs to the caller.
//
// Either array is [num_blocks][num_kv_heads][kAttentionBlock] rows of head_dim values: those of a
// head that a step of the softmax reads follow each other. A row that is not bf16 is its values and
// then one fp32 scale a tile (ops/format/kv_dtype.h), without padding. Keys may be in
// KeyOrder::kPairs instead, each block of a head by itself.

#include <cstddef>

#include "ops/format/attention_batch.h"
#include "ops/format/kv_dtype.h"
#include "ops/tensor/bf16.h"

namespace afd::ops {

struct GqaShape {
    size_t hidden = 0;
    size_t num_heads = 0;
    size_t num_kv_heads = 0;  // A divisor of num_heads; head h reads h / group_size().
    size_t head_dim = 0;

    size_t group_size() const { return num_heads / num_kv_heads; }
    size_t query_columns() const { return num_heads * head_dim; }
    size_t kv_columns() const { return num_kv_heads * head_dim; }
};

// How the keys of one block of one head lie: as kAttentionBlock rows, or as
// [head_dim / 2][kAttentionBlock][2], where positions that follow each other have a pair of
// elements side by side. The second needs an even head_dim; where values are not bf16, scales
// [num_kv_tiles(head_dim)][kAttentionBlock] follow.
enum class KeyOrder { kRows, kPairs };

struct GqaCache {
    Bf16* keys = nullptr;  // bf16
    Bf16* values = nullptr;
    size_t num_slots = 0;
    KvDtype dtype = KvDtype::kBf16;
    KeyOrder key_order = KeyOrder::kRows;
    std::byte* key_rows = nullptr;  // Otherwise
    std::byte* value_rows = nullptr;
};

// Which row of either array is that of a slot's head.
inline size_t gqa_row_index(const GqaShape& shape, size_t slot, size_t kv_head) {
    const size_t head = slot / kAttentionBlock * shape.num_kv_heads + kv_head;
    return head * kAttentionBlock + slot % kAttentionBlock;
}

// Elements of KeyOrder::kPairs from a pair to the next one of the same position.
inline constexpr size_t kKeyPairStep = 2 * kAttentionBlock;

// Where element `i` of position `in_block` stands in a block of KeyOrder::kPairs.
constexpr size_t key_pair_place(size_t in_block, size_t i) {
    return i / 2 * kKeyPairStep + 2 * in_block + i % 2;
}

// Where element `i` of a key, which would be row `row`, stands in a bf16 array.
inline size_t gqa_key_place(const GqaShape& shape, KeyOrder order, size_t row, size_t i) {
    if (order == KeyOrder::kRows) return row * shape.head_dim + i;
    const size_t in_block = row % kAttentionBlock;
    return (row - in_block) * shape.head_dim + key_pair_place(in_block, i);
}

// Bytes of a head's row in either array.
constexpr size_t gqa_row_bytes(KvDtype dtype, size_t head_dim) {
    return dtype == KvDtype::kBf16 ? head_dim * sizeof(Bf16) : kv_tile_row_bytes(head_dim);
}

}  // namespace afd::ops
