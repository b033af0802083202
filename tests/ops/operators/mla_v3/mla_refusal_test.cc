// SPDX-License-Identifier: Apache-2.0
//
// What the serving path's MLA refuses, and in which words.

#include <gtest/gtest.h>

#include "ops/tensor/workspace.h"
#include "tests/ops/attention/mla_layer.h"

namespace afd::ops {
namespace {

using Layer = test::MlaLayer;
using Cache = test::MlaCache;
using test::RandomMatrix;

TEST(MlaProlog, RefusesBadIndicesBeforeWritingAnything) {
    const Layer layer(NumericClass::kPortable, 0);
    const MlaShape& s = layer.shape;
    const RandomMatrix x(2, s.hidden, 14);
    SerialParallel serial;
    RandomMatrix query(2, s.num_heads * s.kv_lora_rank, 1);
    RandomMatrix query_rope(2, s.num_heads * s.qk_rope_head_dim, 1);
    RandomMatrix query_norm(2, 1, 1);
    const Workspace workspace(mla_prolog_workspace_bytes(s, 2));
    Cache cache(s);
    const std::vector<Bf16> before = cache.ckv;
    const auto message = [&](int32_t position, int64_t index, Rows<Bf16> norm) {
        const int32_t positions[] = {0, position};
        const int64_t indices[] = {0, index};
        const Result<> result = mla_prolog({.weights = &layer.weights,
                                            .rope = &layer.rope,
                                            .token_x = x.rows(),
                                            .batch = {2, positions, indices, nullptr},
                                            .cache = cache.view(),
                                            .query = query.mutable_rows(),
                                            .query_rope = query_rope.mutable_rows(),
                                            .query_norm = norm},
                                           workspace.bytes(),
                                           serial);
        return result.ok() ? std::string("ok") : result.error().message;
    };
    EXPECT_EQ(message(1, 512, {}),
              "cache_index[1] is 512; allowed are -1 (write nothing) and slots below 512");
    EXPECT_EQ(message(256, 1, {}), "positions[1] is 256; the rope table has 256 positions");
    EXPECT_EQ(message(1, 1, query_norm.mutable_rows()),
              "query_norm is asked for, but q_lora_rank is 0: there is no low-rank query");
    EXPECT_EQ(cache.ckv, before);
}

TEST(MlaAttention, RefusesABlockOutsideTheCache) {
    const Layer layer(NumericClass::kPortable, 0);
    const MlaShape& s = layer.shape;
    SerialParallel serial;
    Cache cache(s);
    const RandomMatrix query(1, s.num_heads * s.kv_lora_rank, 1);
    const RandomMatrix query_rope(1, s.num_heads * s.qk_rope_head_dim, 1);
    RandomMatrix out(1, s.num_heads * s.v_head_dim, 1);
    const Workspace workspace(mla_attention_workspace_bytes(s, 1, 1));
    const int32_t position = 70;
    const int32_t table[] = {0, 8};
    const int32_t* tables[] = {table};
    const Result<> result = mla_attention({.weights = &layer.weights,
                                           .query = query.rows(),
                                           .query_rope = query_rope.rows(),
                                           .batch = {1, &position, nullptr, tables},
                                           .cache = cache.view(),
                                           .out = out.mutable_rows()},
                                          workspace.bytes(),
                                          serial);
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().message, "block_tables[0][1] is 8; the cache has 8 blocks");
}

TEST(MlaWeights, ValidationNamesThePartAndBothSizes) {
    Layer layer(NumericClass::kPortable, 33);
    layer.weights.weight_dkv_kr = PackedLinear::pack(layer.dq.rows(), NumericClass::kPortable);
    const Result<> result = validate(layer.weights);
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().message, "weight_dkv_kr is [33, 70]; the shape asks for [57, 70]");
}

}  // namespace
}  // namespace afd::ops
