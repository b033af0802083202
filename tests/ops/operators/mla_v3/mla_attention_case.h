// SPDX-License-Identifier: Apache-2.0
#pragma once

// Sequences whose cache rows and queries mla_prolog_v3 made, for the tests of mla_attention_v3.

#include <gtest/gtest.h>

#include <numeric>

#include "ops/operators/mla_v3/mla_attention_v3.h"
#include "ops/reference/mla_attention_v3.h"
#include "tests/ops/operators/mla_v3/mla_case.h"

namespace afd::ops::test {

inline constexpr size_t kValues = 6;   // V
inline constexpr size_t kHidden = 21;  // He

inline MlaCaseOptions attention_options() {
    MlaCaseOptions options;
    options.b = 2;
    options.s = 70;  // A whole block of the softmax and a part.
    options.he = 20;
    options.hcq = 8;
    options.n = 9;  // Two groups of heads.
    options.d = 5;
    options.block_num = 13;
    options.block_size = 16;
    options.query_norm = false;
    return options;
}

// Sequences whose cache rows and queries mla_prolog_v3 made, and the attention over them. Rows that
// no position reaches are NaN as bf16, so that reading one shows.
class AttentionCase {
  public:
    explicit AttentionCase(const MlaCaseOptions& options, bool with_weight_o = true)
        : prolog(options), o(options) {
        if (o.kv == 0) std::fill(prolog.kv_cache.bytes.begin(), prolog.kv_cache.bytes.end(), kNaN);
        std::fill(prolog.kr_cache.bytes.begin(), prolog.kr_cache.bytes.end(), kNaN);
        place_blocks();
        prolog.run_portable();
        const size_t t = o.b * o.s;
        positions = Tensor(DType::kInt32, token_axes({}));
        sequence_index = Tensor(DType::kInt32, token_axes({}));
        for (size_t i = 0; i < t; ++i) {
            positions.as<int32_t>()[i] = static_cast<int32_t>(i % o.s);
            sequence_index.as<int32_t>()[i] = static_cast<int32_t>(i / o.s);
        }
        if (!o.merged) sequence_index = Tensor();
        weight_uv = random_tensor(DType::kBf16, {o.n, kValues, o.hckv}, 31, 0.3f);
        if (with_weight_o) {
            weight_o = random_tensor(DType::kBf16, {o.n * kValues, kHidden}, 32, 0.3f);
        }
        attention_out =
            Tensor(DType::kBf16, token_axes({with_weight_o ? kHidden : o.n * kValues}), 0x55);
    }

    MlaAttentionV3Request request() {
        MlaAttentionV3Request r;
        r.softmax_scale = 0.05f;
        r.cache_mode = o.cache_mode;
        r.kv_cache_quant_mode = o.kv;
        r.query_quant_mode = o.query;
        r.tile_size = o.tile_size;
        r.query = prolog.query.view;
        r.query_rope = prolog.query_rope.view;
        r.dequant_scale_q_nope = prolog.dequant_scale_q_nope.view;
        r.kv_cache = prolog.kv_cache.view;
        r.kr_cache = prolog.kr_cache.view;
        r.positions = positions.view;
        r.sequence_index = sequence_index.view;
        r.block_table = block_table.view;
        r.actual_seq_len = actual_seq_len.view;
        r.quant_scale_ckv = prolog.quant_scale_ckv.view;
        r.quant_scale_ckr = prolog.quant_scale_ckr.view;
        r.weight_uv = weight_uv.view;
        r.weight_o = weight_o.view;
        r.attention_out = attention_out.view;
        return r;
    }

    void run(NumericClass numeric_class, Parallel& parallel) {
        const MlaAttentionV3Request r = request();
        const Result<MlaAttentionV3Weights> weights = pack_mla_attention_v3(r, numeric_class);
        ASSERT_TRUE(weights.ok()) << weights.error().message;
        const Workspace workspace(workspace_bytes(o.b * o.s, parallel.num_threads()));
        const Result<> result = mla_attention_v3(r, weights.value(), workspace.bytes(), parallel);
        ASSERT_TRUE(result.ok()) << result.error().message;
    }
    void run_portable() {
        SerialParallel serial;
        run(NumericClass::kPortable, serial);
    }
    size_t workspace_bytes(size_t num_tokens, unsigned num_threads) const {
        const MlaShape shape{.kv_lora_rank = o.hckv,
                             .num_heads = o.n,
                             .qk_rope_head_dim = o.dr,
                             .v_head_dim = kValues};
        return mla_attention_v3_workspace_bytes(shape, num_tokens, num_threads);
    }

    MlaCase prolog;
    MlaCaseOptions o;
    Tensor positions, sequence_index, block_table, actual_seq_len, weight_uv, weight_o;
    Tensor attention_out;

  private:
    static constexpr std::byte kNaN{0xff};

    std::vector<size_t> token_axes(std::vector<size_t> rest) const {
        if (o.merged) {
            rest.insert(rest.begin(), o.b * o.s);
        } else {
            rest.insert(rest.begin(), {o.b, o.s});
        }
        return rest;
    }

    // Gives every sequence scattered blocks and points the prolog's cache_index there.
    void place_blocks() {
        if (o.cache_mode == "TND") {
            actual_seq_len = Tensor(DType::kInt32, {o.b});
            for (size_t b = 0; b < o.b; ++b) {
                actual_seq_len.as<int32_t>()[b] = static_cast<int32_t>((b + 1) * o.s);
            }
        }
        if (o.cache_mode == "TND" || o.cache_mode == "BSND") return;
        const size_t per_sequence = (o.s + o.block_size - 1) / o.block_size;
        std::vector<int32_t> blocks(o.block_num);
        std::iota(blocks.begin(), blocks.end(), 0);
        std::shuffle(blocks.begin(), blocks.end(), std::mt19937(o.seed + 40));
        block_table = Tensor(DType::kInt32, {o.b, per_sequence});
        for (size_t i = 0; i < block_table.size(); ++i) {
            block_table.as<int32_t>()[i] = blocks[i];
        }
        if (o.cache_mode.starts_with("PA_BLK")) {
            std::vector<int64_t> entries(
                blocks.begin(), blocks.begin() + static_cast<ptrdiff_t>(block_table.size()));
            prolog.cache_index = index_tensor(o.merged ? std::vector<size_t>{entries.size()}
                                                       : std::vector<size_t>{o.b, per_sequence},
                                              entries);
            for (size_t b = 0; b < o.b && o.merged; ++b) {
                prolog.actual_seq_len.as<int32_t>()[b] = static_cast<int32_t>((b + 1) * o.s);
            }
            return;
        }
        for (size_t t = 0; t < o.b * o.s; ++t) {
            const size_t position = t % o.s;
            const size_t entry = t / o.s * per_sequence + position / o.block_size;
            prolog.cache_index.as<int64_t>()[t] = static_cast<int64_t>(
                static_cast<size_t>(blocks[entry]) * o.block_size + position % o.block_size);
        }
    }
};

// Scenarios that give the five pairs of cache and query formats.
inline std::vector<MlaCaseOptions> all_formats() {
    std::vector<MlaCaseOptions> formats;
    for (const int digits : {0, 120, 130, 211, 231}) {
        MlaCaseOptions options = attention_options();
        options.weight = digits / 100;
        options.kv = digits / 10 % 10;
        options.query = digits % 10;
        formats.push_back(options);
    }
    return formats;
}

}  // namespace afd::ops::test
