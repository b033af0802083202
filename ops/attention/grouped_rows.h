// SPDX-License-Identifier: Apache-2.0
#pragma once

// What gqa_attention reads of a GqaCache. Internal to ops/.

#include <cstddef>
#include <span>

#include "ops/cpu/kernels.h"
#include "ops/format/gqa_cache.h"
#include "ops/tensor/bf16.h"
#include "ops/tensor/workspace.h"

namespace afd::ops {

// Some positions of one block, maybe none, of a head of keys and values: rows that follow each
// other in either array, from gqa_row_index() on.
struct HeadRows {
    size_t index = 0;
    size_t count = 0;
};

// Room for a block of a quantised cache as the kernels read it: values [kAttentionBlock, head_dim],
// and keys likewise or, where the cache has them so, those of the whole block in KeyOrder::kPairs.
struct ExpandedRows {
    ExpandedRows(const GqaShape& shape, WorkspaceCursor& cursor);
    static size_t num_bytes(const GqaShape& shape);

    Bf16* keys;
    Bf16* values;
};

class GroupedRows {
  public:
    GroupedRows(const GqaCache& cache, const GqaShape& shape, float softmax_scale);

    // Asks for `next` to be fetched while the block is computed. Quantised rows are expanded to
    // `room`, where they stay until the next call. is_cold: no call had `rows` as its next.
    // REQUIRES: rows.count > 0.
    cpu::AttendBlock block(HeadRows rows,
                           HeadRows next,
                           bool is_cold,
                           const ExpandedRows& room) const;

    // Whether a state of `num_heads` heads takes quantised_block() to attend_quantised.
    bool stays_quantised(const cpu::Kernels& kernels, size_t num_heads) const;

    // The same of a quantised cache, without an expansion. REQUIRES: stays_quantised(), and rows
    // from a block's first one on.
    cpu::QuantisedBlock quantised_block(HeadRows rows,
                                        HeadRows next,
                                        const ExpandedRows& room) const;

  private:
    cpu::AttendBlock expanded_block(HeadRows rows, HeadRows next, const ExpandedRows& room) const;
    // The whole block's, those of rows.
    cpu::QuantisedKeyPairs key_pairs(HeadRows rows, std::span<const std::byte> next) const;
    cpu::QuantisedRows quantised_rows(const std::byte* array,
                                      HeadRows rows,
                                      std::span<const std::byte> next) const;
    // Of a quantised cache. Keys in pairs are those of a whole block.
    std::span<const std::byte> bytes_of(const std::byte* array, HeadRows rows) const;
    std::span<const std::byte> key_bytes(HeadRows rows) const;
    const Bf16* keys(HeadRows rows) const;

    const GqaCache& cache_;
    const GqaShape& shape_;
    float softmax_scale_;
};

}  // namespace afd::ops
