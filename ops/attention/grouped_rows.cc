// SPDX-License-Identifier: Apache-2.0

#include "ops/attention/grouped_rows.h"

#include "ops/attention/kv_tiles.h"

namespace afd::ops {

ExpandedRows::ExpandedRows(const GqaShape& shape, WorkspaceCursor& cursor)
    : keys(cursor.take<Bf16>(kAttentionBlock * shape.head_dim)),
      values(cursor.take<Bf16>(kAttentionBlock * shape.head_dim)) {}

size_t ExpandedRows::num_bytes(const GqaShape& shape) {
    return 2 * workspace_bytes_of<Bf16>(kAttentionBlock * shape.head_dim);
}

GroupedRows::GroupedRows(const GqaCache& cache, const GqaShape& shape, float softmax_scale)
    : cache_(cache), shape_(shape), softmax_scale_(softmax_scale) {}

cpu::AttendBlock GroupedRows::block(HeadRows rows,
                                    HeadRows next,
                                    bool is_cold,
                                    const ExpandedRows& room) const {
    if (cache_.dtype != KvDtype::kBf16) return expanded_block(rows, next, room);
    cpu::AttendBlock block{.ckv = keys(rows),
                           .kr = nullptr,
                           .values = cache_.values + rows.index * shape_.head_dim,
                           .num_positions = rows.count,
                           .scale = softmax_scale_,
                           .is_cold = is_cold,
                           .keys_in_pairs = cache_.key_order == KeyOrder::kPairs};
    if (next.count == 0) return block;
    block.next_ckv = keys(next);
    block.num_next = next.count;
    if (block.keys_in_pairs) return block;
    block.afterwards = std::as_bytes(
        std::span(cache_.values + next.index * shape_.head_dim, next.count * shape_.head_dim));
    return block;
}

cpu::AttendBlock GroupedRows::expanded_block(HeadRows rows,
                                             HeadRows next,
                                             const ExpandedRows& room) const {
    // With several heads, memory has as much to do during the second expansion as during the sums.
    // On a Zen 5, with 8 heads and keys in rows, 4,096 positions took 530 us so, 560 with keys and
    // values each during their own expansion, 600 with keys in halves during both and values during
    // the sums, and 725 without fetches. Few heads leave no time for that.
    const bool is_few = shape_.group_size() <= cpu::kNearHeads;
    const auto next_keys = key_bytes(next);
    const auto next_values = bytes_of(cache_.value_rows, next);
    cpu::AttendBlock block{
        .kr = nullptr, .values = room.values, .num_positions = rows.count, .scale = softmax_scale_};
    const auto with_keys = is_few ? next_keys : std::span<const std::byte>();
    if (cache_.key_order == KeyOrder::kPairs) {
        expand_key_pairs(cache_.dtype, key_pairs(rows, with_keys), room.keys);
        block.keys_in_pairs = true;
        block.ckv = room.keys + key_pair_place(rows.index % kAttentionBlock, 0);
    } else {
        expand_kv_rows(cache_.dtype, quantised_rows(cache_.key_rows, rows, with_keys), room.keys);
        block.ckv = room.keys;
    }
    expand_kv_rows(cache_.dtype,
                   quantised_rows(cache_.value_rows, rows, is_few ? next_values : next_keys),
                   room.values);
    if (!is_few) block.afterwards = next_values;
    return block;
}

bool GroupedRows::stays_quantised(const cpu::Kernels& kernels, size_t num_heads) const {
    return cache_.key_order == KeyOrder::kPairs && cpu::QuantisedBlock::takes(shape_.head_dim) &&
           num_heads <= kernels.quantised_heads_max.of(cache_.dtype);
}

cpu::QuantisedBlock GroupedRows::quantised_block(HeadRows rows,
                                                 HeadRows next,
                                                 const ExpandedRows& room) const {
    // A whole block ahead: both are no larger than one in bf16, and stay in the first-level cache.
    return {.dtype = cache_.dtype,
            .keys = key_pairs(rows, key_bytes(next)),
            .values = quantised_rows(cache_.value_rows, rows, bytes_of(cache_.value_rows, next)),
            .keys_room = room.keys,
            .values_room = room.values,
            .num_positions = rows.count,
            .scale = softmax_scale_};
}

cpu::QuantisedKeyPairs GroupedRows::key_pairs(HeadRows rows,
                                              std::span<const std::byte> next) const {
    const std::byte* const values = key_bytes(rows).data();
    return {.values = values,
            .scales = values + kAttentionBlock * shape_.head_dim,
            .count = shape_.head_dim,
            .next = next};
}

cpu::QuantisedRows GroupedRows::quantised_rows(const std::byte* array,
                                               HeadRows rows,
                                               std::span<const std::byte> next) const {
    const std::byte* const values = bytes_of(array, rows).data();
    return {.values = values,
            .scales = values + shape_.head_dim,
            .row_bytes = kv_tile_row_bytes(shape_.head_dim),
            .num_rows = rows.count,
            .count = shape_.head_dim,
            .next = next};
}

std::span<const std::byte> GroupedRows::bytes_of(const std::byte* array, HeadRows rows) const {
    const size_t bytes = kv_tile_row_bytes(shape_.head_dim);
    return {array + rows.index * bytes, rows.count * bytes};
}

std::span<const std::byte> GroupedRows::key_bytes(HeadRows rows) const {
    if (cache_.key_order == KeyOrder::kRows || rows.count == 0) {
        return bytes_of(cache_.key_rows, rows);
    }
    const size_t in_block = rows.index % kAttentionBlock;
    return bytes_of(cache_.key_rows, {rows.index - in_block, kAttentionBlock});
}

const Bf16* GroupedRows::keys(HeadRows rows) const {
    return cache_.keys + gqa_key_place(shape_, cache_.key_order, rows.index, 0);
}

}  // namespace afd::ops
