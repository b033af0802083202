// SPDX-License-Identifier: Apache-2.0
#pragma once

// QuantisedRows: rows of int8 or e4m3 values with an fp32 scale for each kKvTile of them, as a
// quantised cache (ops/attention/kv_tiles.h) and fp8 rows (ops/format/fp8_layout.h) have them.
// QuantisedKeyPairs: the same of a block of keys in KeyOrder::kPairs (ops/format/gqa_cache.h).

#include <cstddef>
#include <cstring>
#include <span>

#include "ops/format/attention_batch.h"

namespace afd::ops::cpu {

struct QuantisedRows {
    const std::byte* values = nullptr;  // [count], of the first row
    const std::byte* scales = nullptr;  // [num_kv_tiles(count)], of the first row; at any address
    size_t row_bytes = 0;               // From either to that of the next row.
    size_t num_rows = 1;                // At least one.
    size_t count = 0;
    // What will be asked for next, to be fetched meanwhile.
    std::span<const std::byte> next{};

    float scale(size_t row, size_t tile) const {
        float scale = 0;
        std::memcpy(&scale, scales + row * row_bytes + tile * sizeof scale, sizeof scale);
        return scale;
    }
};

// All positions of the block must be readable, whatever they hold.
struct QuantisedKeyPairs {
    const std::byte* values = nullptr;  // [count / 2][kAttentionBlock][2]
    const std::byte* scales = nullptr;  // [num_kv_tiles(count)][kAttentionBlock], at any address
    size_t count = 0;                   // Of a position; even.
    std::span<const std::byte> next{};  // As in QuantisedRows.

    float scale(size_t tile, size_t position) const {
        float scale = 0;
        std::memcpy(
            &scale, scales + (tile * kAttentionBlock + position) * sizeof scale, sizeof scale);
        return scale;
    }
};

}  // namespace afd::ops::cpu
