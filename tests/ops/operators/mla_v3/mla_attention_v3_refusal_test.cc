// SPDX-License-Identifier: Apache-2.0

// What mla_attention_v3 refuses, with the whole message, and that nothing is written then.

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "tests/ops/operators/mla_v3/mla_attention_case.h"

namespace afd::ops {
namespace {

using test::attention_options;
using test::AttentionCase;
using test::MlaCaseOptions;
using test::with_shape;

struct Refusal {
    int format;
    const char* cache_mode;
    bool merged;
    std::function<void(AttentionCase&, MlaAttentionV3Request&)> spoil;
    const char* message;  // After "mla_attention_v3: ".
};

TEST(MlaAttentionV3, RefusesByNameValueAndWhatIsAllowedAndWritesNothing) {
    using Request = MlaAttentionV3Request;
    const std::vector<Refusal> refusals = {
        {0,
         "PA_BSND",
         true,
         [](AttentionCase&, Request& r) { r.softmax_scale = INFINITY; },
         "softmax_scale is inf; it must be a finite number"},
        {0,
         "PA_BSND",
         true,
         [](AttentionCase&, Request& r) { r.cache_mode = "ND"; },
         "cache_mode is \"ND\"; allowed are PA_BSND, PA_NZ, PA_BLK_BSND, PA_BLK_NZ, BSND, TND"},
        {0,
         "PA_BSND",
         true,
         [](AttentionCase&, Request& r) { r.kv_cache_quant_mode = 4; },
         "kv_cache_quant_mode is 4; allowed are 0, 1, 2, 3"},
        {0,
         "PA_BSND",
         true,
         [](AttentionCase&, Request& r) { r.query_quant_mode = 2; },
         "query_quant_mode is 2; allowed are 0, 1"},
        {0,
         "PA_BSND",
         true,
         [](AttentionCase&, Request& r) { r.kv_cache_quant_mode = 1; },
         "kv_cache_quant_mode 1, query_quant_mode 0 do not go together; allowed are 00, 11, 20, "
         "30, 31"},
        {231,
         "PA_BSND",
         true,
         [](AttentionCase&, Request& r) { r.tile_size = 0; },
         "tile_size is 0; allowed are 1 to 2147483647"},
        {231,
         "PA_BSND",
         true,
         [](AttentionCase&, Request& r) {
             r.tile_size = 24;
             r.kv_cache = with_shape(r.kv_cache, {13, 16, 1, 136});
         },
         "tile_size is 24; it must divide Hckv, which is 64"},
        {0,
         "PA_BSND",
         true,
         [](AttentionCase&, Request& r) { r.query = {}; },
         "query is missing; it must be [T, N, Hckv] | [B, S, N, Hckv]"},
        {0,
         "PA_BSND",
         true,
         [](AttentionCase&, Request& r) { r.query.dtype = DType::kInt8; },
         "query has dtype int8; kv_cache_quant_mode 0 and query_quant_mode 0 need bf16"},
        {231,
         "PA_BSND",
         true,
         [](AttentionCase&, Request& r) { r.query.dtype = DType::kBf16; },
         "query has dtype bf16; kv_cache_quant_mode 3 and query_quant_mode 1 need int8"},
        {120,
         "PA_BSND",
         true,
         [](AttentionCase&, Request& r) { r.kr_cache.dtype = DType::kBf16; },
         "kr_cache has dtype bf16; kv_cache_quant_mode 2 and query_quant_mode 0 need int8"},
        {231,
         "PA_BSND",
         true,
         [](AttentionCase&, Request& r) { r.dequant_scale_q_nope = {}; },
         "dequant_scale_q_nope is missing; query_quant_mode is 1"},
        {0,
         "PA_BSND",
         true,
         [](AttentionCase&, Request& r) { r.dequant_scale_q_nope = r.positions; },
         "dequant_scale_q_nope is given, but query_quant_mode is 0; leave it out"},
        {0,
         "PA_BSND",
         true,
         [](AttentionCase&, Request& r) { r.kr_cache = {}; },
         "kr_cache is missing; kv_cache_quant_mode is 0"},
        {0,
         "PA_BSND",
         true,
         [](AttentionCase&, Request& r) { r.sequence_index = {}; },
         "sequence_index is missing; query has axes [T, N, Hckv]"},
        {0,
         "PA_NZ",
         true,
         [](AttentionCase&, Request& r) { r.block_table = {}; },
         "block_table is missing; cache_mode is PA_NZ"},
        {0,
         "TND",
         true,
         [](AttentionCase&, Request& r) { r.block_table = r.positions; },
         "block_table is given, but cache_mode is TND; leave it out"},
        {0,
         "TND",
         true,
         [](AttentionCase&, Request& r) { r.actual_seq_len = {}; },
         "actual_seq_len is missing; cache_mode is TND"},
        {0,
         "PA_BSND",
         true,
         [](AttentionCase&, Request& r) { r.actual_seq_len = r.positions; },
         "actual_seq_len is given, but cache_mode is PA_BSND; leave it out"},
        {120,
         "PA_BSND",
         true,
         [](AttentionCase&, Request& r) { r.quant_scale_ckv = {}; },
         "quant_scale_ckv is missing; kv_cache_quant_mode is 2"},
        {120,
         "PA_BSND",
         true,
         [](AttentionCase&, Request& r) { r.quant_scale_ckr = {}; },
         "quant_scale_ckr is missing; kv_cache_quant_mode is 2"},
        {120,
         "PA_BSND",
         true,
         [](AttentionCase&, Request& r) { r.quant_scale_ckv = with_shape(r.quant_scale_ckv, {1}); },
         "quant_scale_ckv has 1 axis; with kv_cache_quant_mode 2 it must be [1, Hckv]"},
        {211,
         "PA_BSND",
         true,
         [](AttentionCase&, Request& r) {
             r.quant_scale_ckv = with_shape(r.quant_scale_ckv, {1, 64});
         },
         "quant_scale_ckv has 2 axes; with kv_cache_quant_mode 1 it must be [1]"},
        {0,
         "BSND",
         false,
         [](AttentionCase&, Request& r) { r.positions = with_shape(r.positions, {140}); },
         "positions has 1 axes; query has axes [B, S, N, Hckv], so it must have 2"},
        {0,
         "TND",
         true,
         [](AttentionCase&, Request& r) {
             r.kv_cache = with_shape(r.kv_cache, {140, 1, 1, 64});
         },
         "kv_cache has 4 axes; cache_mode TND needs 3"},
        {0,
         "PA_BSND",
         true,
         [](AttentionCase&, Request& r) {
             r.kr_cache = with_shape(r.kr_cache, {2, 16, 1, 32});
         },
         "kr_cache has 2 on axis 0; it must be as kv_cache, 13"},
        {0,
         "PA_BSND",
         true,
         [](AttentionCase&, Request& r) {
             r.kr_cache = with_shape(r.kr_cache, {12, 16, 1, 32});
         },
         "kr_cache has shape [12, 16, 1, 32]; it must be [BlockNum, BlockSize, Nkv, Dr] "
         "| [Bkv, Skv, Nkv, Dr] | [Tkv, Nkv, Dr] with BlockNum = 13 (kv_cache), "
         "BlockSize = 16 (kv_cache), Nkv = 1, Dr = 32 (query_rope), Bkv = 2 "
         "(block_table)"},
        {231,
         "PA_BSND",
         true,
         [](AttentionCase&, Request& r) { r.cache_mode = "PA_NZ"; },
         "cache_mode is PA_NZ; with kv_cache_quant_mode 3 allowed are PA_BSND, PA_BLK_BSND, BSND, "
         "TND"},
        {0,
         "PA_NZ",
         true,
         [](AttentionCase&, Request& r) {
             r.query_rope = with_shape(r.query_rope, {140, 9, 8});
             r.kr_cache = with_shape(r.kr_cache, {13, 16, 1, 8});
         },
         "kr_cache has rows of 16 bytes; cache_mode PA_NZ needs a multiple of 32"},
        {0,
         "PA_BSND",
         true,
         [](AttentionCase&, Request& r) {
             r.weight_uv = with_shape(r.weight_uv, {9, 6, 63});
         },
         "query has shape [140, 9, 64]; it must be [T, N, Hckv] | [B, S, N, Hckv] with T"
         " = 140, N = 9 (weight_uv), Hckv = 63 (weight_uv)"},
        {0,
         "PA_BSND",
         true,
         [](AttentionCase&, Request& r) {
             r.attention_out = with_shape(r.attention_out, {140, 20});
         },
         "attention_out has shape [140, 20]; it must be [T, He] | [B, S, He] with T = "
         "140, He = 21 (weight_o)"},
        {0,
         "PA_BSND",
         true,
         [](AttentionCase& c, Request&) { c.positions.as<int32_t>()[4] = -1; },
         "positions[4] is -1; sequence 0 has 80 rows"},
        {0,
         "BSND",
         false,
         [](AttentionCase& c, Request&) { c.positions.as<int32_t>()[71] = 70; },
         "positions[71] is 70; sequence 1 has 70 rows"},
        {0,
         "TND",
         true,
         [](AttentionCase& c, Request&) { c.positions.as<int32_t>()[71] = 70; },
         "positions[71] is 70; sequence 1 has 70 rows"},
        {0,
         "TND",
         true,
         [](AttentionCase& c, Request&) { c.actual_seq_len.as<int32_t>()[1] = 141; },
         "actual_seq_len[1] is 141; allowed are 70 to 140"},
        {0,
         "PA_BSND",
         true,
         [](AttentionCase& c, Request&) { c.sequence_index.as<int32_t>()[3] = -1; },
         "sequence_index[3] is -1; the cache has 2 sequences"},
        {0,
         "PA_BSND",
         false,
         [](AttentionCase&, Request& r) {
             r.block_table = with_shape(r.block_table, {1, 10});
         },
         "query has B 2; the cache has 1 sequences"},
        {0,
         "PA_BSND",
         true,
         [](AttentionCase& c, Request&) { c.block_table.as<int32_t>()[6] = 13; },
         "block_table[1][1] is 13; the cache has 13 blocks"},
        {0,
         "PA_BSND",
         true,
         [](AttentionCase& c, Request&) { c.block_table.as<int32_t>()[0] = -1; },
         "block_table[0][0] is -1; the cache has 13 blocks"},
    };
    for (const Refusal& refusal : refusals) {
        MlaCaseOptions options = attention_options();
        options.weight = refusal.format / 100;
        options.kv = refusal.format / 10 % 10;
        options.query = refusal.format % 10;
        options.cache_mode = refusal.cache_mode;
        options.merged = refusal.merged;
        AttentionCase one(options);
        // Valid as it stands: the refusal comes from what `spoil` does.
        const MlaAttentionV3Weights weights =
            pack_mla_attention_v3(one.request(), NumericClass::kPortable).value();
        MlaAttentionV3Request request = one.request();
        refusal.spoil(one, request);
        const Workspace workspace(one.workspace_bytes(200, 1));
        SerialParallel serial;
        const auto message = [](const auto& result) {
            return result.ok() ? "accepted" : result.error().message;
        };
        const std::string want = std::string("mla_attention_v3: ") + refusal.message;
        EXPECT_EQ(message(mla_attention_v3(request, weights, workspace.bytes(), serial)), want);
        EXPECT_EQ(message(pack_mla_attention_v3(request, NumericClass::kPortable)), want);
        EXPECT_EQ(message(reference::mla_attention_v3(request)), want);
        EXPECT_EQ(one.attention_out.bytes,
                  test::GuardedVector<std::byte>(one.attention_out.bytes.size(), std::byte{0x55}));
    }
}

}  // namespace
}  // namespace afd::ops
