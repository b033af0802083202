// SPDX-License-Identifier: Apache-2.0
#pragma once

// GroupedModel: attention with grouped heads as released models have it.

#include <array>
#include <cstddef>

#include "ops/format/gqa_cache.h"
#include "ops/tensor/bf16.h"

namespace afd::bench {

struct GroupedModel {
    const char* name;
    ops::GqaShape shape;
};

inline constexpr std::array kGroupedModels = {
    GroupedModel{"qwen3-30b-a3b",
                 {.hidden = 2048, .num_heads = 32, .num_kv_heads = 4, .head_dim = 128}},
    GroupedModel{"mixtral-8x7b",
                 {.hidden = 4096, .num_heads = 32, .num_kv_heads = 8, .head_dim = 128}},
    GroupedModel{"olmoe-1b-7b",
                 {.hidden = 2048, .num_heads = 16, .num_kv_heads = 16, .head_dim = 128}}};

// Keys and values of a position.
inline size_t grouped_position_bytes(const ops::GqaShape& shape) {
    return 2 * shape.kv_columns() * sizeof(ops::Bf16);
}

// A score and a weighted sum of each query head, for `num_positions` positions.
inline double grouped_operations(const ops::GqaShape& shape, double num_positions) {
    return 4 * num_positions * static_cast<double>(shape.query_columns());
}

}  // namespace afd::bench
