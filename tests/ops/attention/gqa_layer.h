// SPDX-License-Identifier: Apache-2.0
#pragma once

// Random layers of attention with grouped heads, and a cache for them.

#include <gtest/gtest.h>

#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "ops/attention/gqa_attention.h"
#include "ops/attention/gqa_prolog.h"
#include "ops/reference/gqa.h"
#include "ops/tensor/workspace.h"
#include "tests/ops/test_data.h"

namespace afd::ops::test {

inline constexpr size_t kGqaBlocks = 8;

enum class GqaNorm { kNone, kHeads, kRow };

struct GqaOptions {
    std::string name;
    GqaShape shape;
    size_t rotated = 0;
    GqaNorm norm = GqaNorm::kNone;
    bool has_bias = false;
    std::optional<float> clip = {};
    size_t window = 0;
    bool has_sinks = false;
};

// Uneven on purpose: heads that are no power of two, widths that fill no register, a group of more
// heads than a kernel takes at once, and as many heads of keys as of queries.
inline std::vector<GqaOptions> gqa_options() {
    return {
        {.name = "three heads of one",
         .shape = {.hidden = 70, .num_heads = 3, .num_kv_heads = 1, .head_dim = 10},
         .rotated = 10},
        {.name = "norms of heads",
         .shape = {.hidden = 65, .num_heads = 8, .num_kv_heads = 2, .head_dim = 32},
         .rotated = 32,
         .norm = GqaNorm::kHeads},
        {.name = "norms of rows and a clip",
         .shape = {.hidden = 64, .num_heads = 3, .num_kv_heads = 3, .head_dim = 18},
         .rotated = 18,
         .norm = GqaNorm::kRow,
         .clip = 1.5f},
        {.name = "a large group, biases, half rotated",
         .shape = {.hidden = 33, .num_heads = 20, .num_kv_heads = 1, .head_dim = 12},
         .rotated = 6,
         .has_bias = true},
        {.name = "wide heads of a group, and a window",
         .shape = {.hidden = 40, .num_heads = 10, .num_kv_heads = 2, .head_dim = 72},
         .rotated = 72,
         .window = 70},
        {.name = "a window longer than a block",
         .shape = {.hidden = 64, .num_heads = 4, .num_kv_heads = 2, .head_dim = 16},
         .rotated = 16,
         .window = 70},
        {.name = "a window shorter than a block",
         .shape = {.hidden = 30, .num_heads = 3, .num_kv_heads = 1, .head_dim = 10},
         .rotated = 10,
         .window = 21},
        {.name = "sinks of a group that tokens share, and a window",
         .shape = {.hidden = 64, .num_heads = 8, .num_kv_heads = 2, .head_dim = 16},
         .rotated = 16,
         .has_bias = true,
         .window = 70,
         .has_sinks = true},
        {.name = "sinks of a large group",
         .shape = {.hidden = 33, .num_heads = 20, .num_kv_heads = 1, .head_dim = 12},
         .rotated = 12,
         .has_sinks = true},
        {.name = "wide heads, each with keys of its own",
         .shape = {.hidden = 33, .num_heads = 2, .num_kv_heads = 2, .head_dim = 150},
         .rotated = 150},
        {.name = "groups of eight heads, which fill registers",
         .shape = {.hidden = 33, .num_heads = 16, .num_kv_heads = 2, .head_dim = 128},
         .rotated = 128},
        {.name = "more heads of keys than go over a block together, two heads each",
         .shape = {.hidden = 33, .num_heads = 18, .num_kv_heads = 9, .head_dim = 136},
         .rotated = 136},
    };
}

struct GqaLayer {
    GqaShape shape;
    RandomMatrix q;
    RandomMatrix k;
    RandomMatrix v;
    GqaWeights weights;
    RopeTable rope;
    float softmax_scale = 0.3f;
    size_t window = 0;
    std::vector<float> sinks;
    NumericClass numeric_class;

    GqaLayer(const GqaOptions& options, NumericClass chosen_class)
        : shape(options.shape),
          q(shape.query_columns(), shape.hidden, 1, 0.15f),
          k(shape.kv_columns(), shape.hidden, 2, 0.15f),
          v(shape.kv_columns(), shape.hidden, 3, 0.15f),
          numeric_class(chosen_class) {
        weights.shape = shape;
        weights.q_proj = PackedLinear::pack(q.rows(), chosen_class);
        weights.k_proj = PackedLinear::pack(k.rows(), chosen_class);
        weights.v_proj = PackedLinear::pack(v.rows(), chosen_class);
        if (options.has_bias) {
            weights.q_bias = RandomMatrix(1, shape.query_columns(), 4).values;
            weights.k_bias = RandomMatrix(1, shape.kv_columns(), 5).values;
            weights.v_bias = RandomMatrix(1, shape.kv_columns(), 6).values;
        }
        if (options.norm != GqaNorm::kNone) {
            const bool is_row = options.norm == GqaNorm::kRow;
            weights.q_gamma =
                RandomMatrix(1, is_row ? shape.query_columns() : shape.head_dim, 7).values;
            weights.k_gamma =
                RandomMatrix(1, is_row ? shape.kv_columns() : shape.head_dim, 8).values;
        }
        weights.clip = options.clip;
        window = options.window;
        if (options.has_sinks) {
            // Some above and some below all scores.
            for (const Bf16 sink : RandomMatrix(1, shape.num_heads, 9, 4.0f).values) {
                sinks.push_back(to_float(sink));
            }
        }
        rope = RopeTable::make(
                   {.dim = options.rotated, .theta = 10000, .num_positions = 256, .yarn = {}})
                   .value();
        EXPECT_TRUE(validate(weights).ok());
    }

    reference::GqaMatrices reference_weights() const {
        std::optional<double> clip;
        if (weights.clip) clip = static_cast<double>(*weights.clip);
        return {.shape = shape,
                .q_proj = q.rows(),
                .k_proj = k.rows(),
                .v_proj = v.rows(),
                .q_bias = weights.q_bias,
                .k_bias = weights.k_bias,
                .v_bias = weights.v_bias,
                .q_gamma = weights.q_gamma,
                .k_gamma = weights.k_gamma,
                .norm_epsilon = static_cast<double>(weights.norm_epsilon),
                .clip = clip,
                .softmax_scale = static_cast<double>(softmax_scale),
                .window = window,
                .sinks = sinks};
    }
};

// A cache full of NaN, so that reading a slot nobody wrote shows.
struct GqaMemory {
    KvDtype dtype;
    std::vector<Bf16> keys;
    std::vector<Bf16> values;
    std::vector<std::byte> key_rows;  // Not bf16: with scales that are NaN.
    std::vector<std::byte> value_rows;
    KeyOrder key_order = KeyOrder::kRows;

    explicit GqaMemory(const GqaShape& s, KvDtype kv_dtype = KvDtype::kBf16)
        : dtype(kv_dtype),
          keys(kGqaBlocks * kAttentionBlock * s.kv_columns(), Bf16{0x7fc0}),
          values(keys),
          key_rows(
              kGqaBlocks * kAttentionBlock * s.num_kv_heads * gqa_row_bytes(kv_dtype, s.head_dim),
              std::byte{0xff}),
          value_rows(key_rows) {}
    // With keys in the order that the layer's class has them in a cache.
    explicit GqaMemory(const GqaLayer& layer, KvDtype kv_dtype = KvDtype::kBf16)
        : GqaMemory(layer.shape, kv_dtype) {
        key_order = best_key_order(layer.numeric_class, layer.shape, kv_dtype);
    }

    GqaCache view() {
        return {.keys = keys.data(),
                .values = values.data(),
                .num_slots = kGqaBlocks * kAttentionBlock,
                .dtype = dtype,
                .key_order = key_order,
                .key_rows = key_rows.data(),
                .value_rows = value_rows.data()};
    }
};

struct GqaResults {
    RandomMatrix query;
    RandomMatrix out;
};

// Attention alone of tokens of one sequence whose blocks are `table`.
inline RandomMatrix gqa_attend(const GqaLayer& layer,
                               const RandomMatrix& query,
                               const std::vector<int32_t>& positions,
                               const std::vector<int32_t>& table,
                               GqaCache cache) {
    const size_t num_tokens = positions.size();
    const std::vector<const int32_t*> tables(num_tokens, table.data());
    RandomMatrix out(num_tokens, layer.shape.query_columns(), 1);
    SerialParallel serial;
    const Workspace workspace(gqa_attention_workspace_bytes(layer.shape, 1));
    EXPECT_TRUE(gqa_attention({.shape = layer.shape,
                               .numeric_class = layer.numeric_class,
                               .softmax_scale = layer.softmax_scale,
                               .window = layer.window,
                               .sinks = layer.sinks,
                               .query = query.rows(),
                               .batch = {num_tokens, positions.data(), nullptr, tables.data()},
                               .cache = cache,
                               .out = out.mutable_rows()},
                              workspace.bytes(),
                              serial)
                    .ok());
    return out;
}

// Prolog and attention of tokens of one sequence whose blocks are `table`.
inline GqaResults gqa_forward(const GqaLayer& layer,
                              const RandomMatrix& x,
                              const std::vector<int32_t>& positions,
                              const std::vector<int32_t>& table,
                              GqaCache cache,
                              Parallel& parallel) {
    const GqaShape& s = layer.shape;
    const size_t num_tokens = positions.size();
    std::vector<int64_t> cache_index;
    for (const int32_t position : positions) {
        const auto p = static_cast<size_t>(position);
        const size_t block = static_cast<size_t>(table[p / kAttentionBlock]);
        cache_index.push_back(static_cast<int64_t>(block * kAttentionBlock + p % kAttentionBlock));
    }
    const std::vector<const int32_t*> tables(num_tokens, table.data());
    const AttentionBatch batch{num_tokens, positions.data(), cache_index.data(), tables.data()};
    GqaResults r{RandomMatrix(num_tokens, s.query_columns(), 1),
                 RandomMatrix(num_tokens, s.query_columns(), 1)};
    const Workspace workspace(std::max(gqa_prolog_workspace_bytes(s, num_tokens),
                                       gqa_attention_workspace_bytes(s, parallel.num_threads())));
    EXPECT_TRUE(gqa_prolog({.weights = &layer.weights,
                            .rope = &layer.rope,
                            .x = x.rows(),
                            .batch = batch,
                            .cache = cache,
                            .query = r.query.mutable_rows()},
                           workspace.bytes(),
                           parallel)
                    .ok());
    EXPECT_TRUE(gqa_attention({.shape = s,
                               .numeric_class = layer.numeric_class,
                               .softmax_scale = layer.softmax_scale,
                               .window = layer.window,
                               .sinks = layer.sinks,
                               .query = r.query.rows(),
                               .batch = batch,
                               .cache = cache,
                               .out = r.out.mutable_rows()},
                              workspace.bytes(),
                              parallel)
                    .ok());
    return r;
}

inline std::vector<int32_t> positions_from(size_t first, size_t count) {
    std::vector<int32_t> positions(count);
    std::iota(positions.begin(), positions.end(), static_cast<int32_t>(first));
    return positions;
}

}  // namespace afd::ops::test
