// SPDX-License-Identifier: Apache-2.0
#pragma once

// GqaTraits: what families with grouped heads differ in, and how a config.json says it.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "model/json/key_reader.h"
#include "ops/format/gqa_cache.h"

namespace afd::model {

// Which norm queries and keys have: none, one of each head ([head_dim]), or one of the whole row.
enum class QkNorm { kNone, kHeads, kRow };

struct GqaTraits {
    ops::GqaShape shape;
    size_t rotary_dim = 0;  // Of each head's first elements; even.
    QkNorm qk_norm = QkNorm::kNone;
    bool has_qkv_bias = false;
    bool has_o_bias = false;
    bool has_sinks = false;      // A score of each head that no position has.
    std::optional<double> clip;  // Of queries, keys and values.
    // Of each layer: positions that a token sees, its own included; 0, or beyond the list: all.
    std::vector<uint32_t> windows;

    uint32_t window(uint32_t layer) const { return layer < windows.size() ? windows[layer] : 0; }
};

// Reads num_attention_heads, num_key_value_heads (default: as many) and head_dim (default:
// usual_head_dim, or hidden / num_attention_heads); all of a head is rotated. Problems stay in
// `keys`.
GqaTraits read_gqa_traits(KeyReader& keys,
                          uint32_t hidden,
                          std::optional<uint32_t> usual_head_dim = {});

}  // namespace afd::model
