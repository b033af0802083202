// SPDX-License-Identifier: Apache-2.0
#pragma once

// GroupedModel: attention with grouped heads as released models have it.

#include <algorithm>
#include <array>
#include <cstddef>

#include "ops/format/gqa_cache.h"
#include "ops/format/kv_dtype.h"

namespace afd::bench {

struct GroupedModel {
    const char* name;
    ops::GqaShape shape;
    size_t window = 0;  // Positions that a token sees; 0: all.
    bool has_sinks = false;

    // That a token sees of so many.
    size_t seen(size_t num_positions) const {
        return window == 0 ? num_positions : std::min(num_positions, window);
    }
};

inline constexpr std::array kGroupedModels = {
    GroupedModel{"qwen3-30b-a3b",
                 {.hidden = 2048, .num_heads = 32, .num_kv_heads = 4, .head_dim = 128}},
    GroupedModel{"mixtral-8x7b",
                 {.hidden = 4096, .num_heads = 32, .num_kv_heads = 8, .head_dim = 128}},
    GroupedModel{"olmoe-1b-7b",
                 {.hidden = 2048, .num_heads = 16, .num_kv_heads = 16, .head_dim = 128}},
    // Its layers without and with a window, which take turns.
    GroupedModel{"gpt-oss-20b",
                 {.hidden = 2880, .num_heads = 64, .num_kv_heads = 8, .head_dim = 64},
                 0,
                 true},
    GroupedModel{"gpt-oss-20b/window:128",
                 {.hidden = 2880, .num_heads = 64, .num_kv_heads = 8, .head_dim = 64},
                 128,
                 true}};

// Keys and values of a position.
inline size_t grouped_position_bytes(const ops::GqaShape& shape,
                                     ops::KvDtype dtype = ops::KvDtype::kBf16) {
    return 2 * shape.num_kv_heads * ops::gqa_row_bytes(dtype, shape.head_dim);
}

// A score and a weighted sum of each query head, for `num_positions` positions.
inline double grouped_operations(const ops::GqaShape& shape, double num_positions) {
    return 4 * num_positions * static_cast<double>(shape.query_columns());
}

}  // namespace afd::bench
