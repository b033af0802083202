// SPDX-License-Identifier: Apache-2.0

// Shapes, sizes and values that mla_prolog_v3 refuses.

#include <gtest/gtest.h>

#include "tests/ops/operators/mla_v3/mla_prolog_refusal.h"

namespace afd::ops {
namespace {

using test::expect_refusals;
using test::MlaCase;
using test::MlaCaseOptions;
using test::with_shape;
using Request = MlaPrologV3Request;

TEST(MlaPrologV3Refusals, NameWhatAQueryWithoutLowRankCannotHave) {
    const auto no_low_rank = [](MlaCaseOptions& o) { o.hcq = 0; };
    expect_refusals({
        {0,
         no_low_rank,
         [](MlaCase&, Request& r) { r.weight_quant_mode = 1; },
         "weight_quant_mode is 1; without weight_dq (q_lora_rank null) it must be 0"},
        {0,
         no_low_rank,
         [](MlaCase&, Request& r) { r.qc_qr_scale = 2.0f; },
         "qc_qr_scale is 2.000000; without weight_dq (q_lora_rank null) it must be 1"},
        {0,
         no_low_rank,
         [](MlaCase&, Request& r) { r.query_norm_flag = true; },
         "query_norm_flag is true; without weight_dq (q_lora_rank null) it must be false"},
        {0,
         no_low_rank,
         [](MlaCase&, Request& r) { r.rmsnorm_gamma_cq = with_shape(r.token_x, {70}); },
         "rmsnorm_gamma_cq is given, but weight_dq is not; leave it out"},
    });
}

TEST(MlaPrologV3Refusals, NameTheShapeAndWhatItMustBe) {
    const auto unmerged = [](MlaCaseOptions& o) { o.merged = false; };
    expect_refusals({
        {0,
         {},
         [](MlaCase&, Request& r) {
             r.weight_dq = with_shape(r.weight_dq, {69, 37});
         },
         "weight_dq has shape [69, 37]; it must be [He, Hcq] | [ceil(Hcq/c0), "
         "ceil(He/16), 16, c0] with He = 70 (token_x), Hcq = 37, ceil(Hcq/c0) = 3, "
         "ceil(He/16) = 5, c0 = 16"},
        {0,
         {},
         [](MlaCase&, Request& r) {
             r.weight_dkv_kr = with_shape(r.weight_dkv_kr, {6, 5, 16, 32});
         },
         "weight_dkv_kr has shape [6, 5, 16, 32]; it must be [He, Hckv+Dr] | "
         "[ceil(Nkr/c0), ceil(He/16), 16, c0] with Hckv = 64 (weight_uk), Dr = 32, "
         "ceil(Nkr/c0) = 6, ceil(He/16) = 5, c0 = 16"},
        {0,
         {},
         [](MlaCase&, Request& r) {
             r.rope_cos = with_shape(r.rope_cos, {15, 30});
         },
         "rope_cos has shape [15, 30]; it must be [T, Dr] | [B, S, Dr] with T = 15, Dr ="
         " 32"},
        {0,
         unmerged,
         [](MlaCase&, Request& r) {
             r.rope_cos = with_shape(r.rope_cos, {15, 32});
         },
         "rope_cos has 2 axes; token_x has axes [B, S, He], so it must have 3"},
        {0,
         {},
         [](MlaCase&, Request& r) {
             r.query = with_shape(r.query, {3, 5, 3, 64});
         },
         "query has 4 axes; token_x has axes [T, He], so it must have 3"},
        {0,
         {},
         [](MlaCase&, Request& r) {
             r.query = with_shape(r.query, {15, 3, 63});
         },
         "query has shape [15, 3, 63]; it must be [T, N, Hckv] | [B, S, N, Hckv] with T "
         "= 15, N = 3 (weight_uk), Hckv = 64 (weight_uk)"},
        {0,
         {},
         [](MlaCase&, Request& r) {
             r.kv_cache = with_shape(r.kv_cache, {9, 4, 2, 64});
         },
         "kv_cache has shape [9, 4, 2, 64]; it must be [BlockNum, BlockSize, Nkv, Dtile] | [B, S, "
         "Nkv, Dtile] | [T, Nkv, Dtile] with Nkv = 1, Dtile = 64, T = 15"},
        {0,
         {},
         [](MlaCase&, Request& r) {
             r.kr_cache = with_shape(r.kr_cache, {8, 4, 1, 32});
         },
         "kr_cache has 8 on axis 0; it must be as kv_cache, 9"},
        {120,
         {},
         [](MlaCase&, Request& r) { r.quant_scale_ckv = with_shape(r.quant_scale_ckv, {1}); },
         "quant_scale_ckv has 1 axis; with kv_cache_quant_mode 2 it must be [1, Hckv]"},
        {211,
         {},
         [](MlaCase&, Request& r) {
             r.quant_scale_ckv = with_shape(r.quant_scale_ckv, {1, 64});
         },
         "quant_scale_ckv has 2 axes; with kv_cache_quant_mode 1 it must be [1]"},
        {0,
         {},
         [](MlaCase&, Request& r) { r.cache_index = with_shape(r.cache_index, {14}); },
         "cache_index has a last axis of 14; cache_mode PA_BSND needs 15"},
        {0,
         [](MlaCaseOptions& o) {
             o.merged = false;
             o.cache_mode = "PA_BLK_NZ";
         },
         [](MlaCase&, Request& r) {
             r.cache_index = with_shape(r.cache_index, {3, 1});
         },
         "cache_index has a last axis of 1; cache_mode PA_BLK_NZ needs 2"},
        {0,
         {},
         [](MlaCase&, Request& r) { r.weight_uk.strides[1] = 65; },
         "weight_uk is not contiguous; copy it first"},
    });
}

// Every scale and norm, each with one element too few.
TEST(MlaPrologV3Refusals, NameTheShapeOfEveryScale) {
    expect_refusals({
        {200,
         {},
         [](MlaCase&, Request& r) {
             r.dequant_scale_x = with_shape(r.dequant_scale_x, {14, 1});
         },
         "dequant_scale_x has shape [14, 1]; it must be [T] | [T, 1] with T = 15"},
        {200,
         {},
         [](MlaCase&, Request& r) {
             r.dequant_scale_w_dq = with_shape(r.dequant_scale_w_dq, {37});
         },
         "dequant_scale_w_dq has shape [37]; it must be [1, Hcq] with Hcq = 37"},
        {100,
         {},
         [](MlaCase&, Request& r) {
             r.dequant_scale_w_uq_qr = with_shape(r.dequant_scale_w_uq_qr, {1, 128});
         },
         "dequant_scale_w_uq_qr has shape [1, 128]; it must be [1, N*D+N*Dr] with N = 3 "
         "(weight_uk), D = 11 (weight_uk), Dr = 32"},
        {200,
         {},
         [](MlaCase&, Request& r) {
             r.dequant_scale_w_dkv_kr = with_shape(r.dequant_scale_w_dkv_kr, {1, 95});
         },
         "dequant_scale_w_dkv_kr has shape [1, 95]; it must be [1, Hckv+Dr] with Hckv = "
         "64 (weight_uk), Dr = 32"},
        {120,
         {},
         [](MlaCase&, Request& r) {
             r.quant_scale_ckv = with_shape(r.quant_scale_ckv, {1, 63});
         },
         "quant_scale_ckv has shape [1, 63]; it must be [1] | [1, Hckv] with Hckv = 64 "
         "(weight_uk)"},
        {120,
         {},
         [](MlaCase&, Request& r) {
             r.quant_scale_ckr = with_shape(r.quant_scale_ckr, {1, 31});
         },
         "quant_scale_ckr has shape [1, 31]; it must be [1, Dr] with Dr = 32"},
        {100,
         {},
         [](MlaCase&, Request& r) {
             r.smooth_scales_cq = with_shape(r.smooth_scales_cq, {1, 36});
         },
         "smooth_scales_cq has shape [1, 36]; it must be [1, Hcq] | [1] with Hcq = 37"},
        {130,
         {},
         [](MlaCase&, Request& r) {
             r.k_nope_clip_alpha = with_shape(r.dequant_scale_w_uq_qr, {2});
         },
         "k_nope_clip_alpha has shape [2]; it must be [1]"},
        {0,
         {},
         [](MlaCase&, Request& r) {
             r.rmsnorm_gamma_cq = with_shape(r.rmsnorm_gamma_cq, {1, 37});
         },
         "rmsnorm_gamma_cq has shape [1, 37]; it must be [Hcq] with Hcq = 37"},
        {0,
         {},
         [](MlaCase&, Request& r) {
             r.rmsnorm_gamma_ckv = with_shape(r.rmsnorm_gamma_ckv, {1, 64});
         },
         "rmsnorm_gamma_ckv has shape [1, 64]; it must be [Hckv] with Hckv = 64 "
         "(weight_uk)"},
        {0,
         {},
         [](MlaCase&, Request& r) {
             r.rope_sin = with_shape(r.rope_sin, {14, 32});
         },
         "rope_sin has shape [14, 32]; it must be [T, Dr] | [B, S, Dr] with T = 15, Dr ="
         " 32"},
        {0,
         {},
         [](MlaCase&, Request& r) {
             r.query_rope = with_shape(r.query_rope, {15, 3, 31});
         },
         "query_rope has shape [15, 3, 31]; it must be [T, N, Dr] | [B, S, N, Dr] with T"
         " = 15, N = 3 (weight_uk), Dr = 32"},
        {211,
         {},
         [](MlaCase&, Request& r) {
             r.dequant_scale_q_nope = with_shape(r.dequant_scale_q_nope, {15, 3});
         },
         "dequant_scale_q_nope has shape [15, 3]; it must be [T, N, 1] with T = 15, N = 3 "
         "(weight_uk)"},
        {0,
         {},
         [](MlaCase&, Request& r) {
             r.query_norm = with_shape(r.query_norm, {15, 36});
         },
         "query_norm has shape [15, 36]; it must be [T, Hcq] | [B, S, Hcq] with T = 15, "
         "Hcq = 37"},
        {100,
         {},
         [](MlaCase&, Request& r) {
             r.dequant_scale_q_norm = with_shape(r.dequant_scale_q_norm, {15});
         },
         "dequant_scale_q_norm has shape [15]; it must be [T, 1] with T = 15"},
    });
}

TEST(MlaPrologV3Refusals, NameTheCacheModesConstraint) {
    expect_refusals({
        {0,
         {},
         [](MlaCase&, Request& r) { r.cache_mode = "BSND"; },
         "cache_mode is BSND; it needs token_x [B, S, He], not [T, He]"},
        {0,
         [](MlaCaseOptions& o) {
             o.cache_mode = "BSND";
             o.merged = false;
         },
         [](MlaCase&, Request& r) { r.cache_mode = "TND"; },
         "cache_mode is TND; it needs token_x [T, He], not [B, S, He]"},
        {0,
         [](MlaCaseOptions& o) { o.cache_mode = "TND"; },
         [](MlaCase&, Request& r) {
             r.kv_cache = with_shape(r.kv_cache, {15, 1, 1, 64});
         },
         "kv_cache has 4 axes; cache_mode TND needs 3"},
        {0,
         [](MlaCaseOptions& o) {
             o.cache_mode = "BSND";
             o.merged = false;
         },
         [](MlaCase&, Request& r) {
             r.kv_cache = with_shape(r.kv_cache, {5, 3, 1, 64});
         },
         "kv_cache is of 5 x 3 tokens; with cache_mode BSND it must be 3 x 5"},
        {0,
         [](MlaCaseOptions& o) { o.dr = 4; },
         [](MlaCase&, Request& r) { r.cache_mode = "PA_NZ"; },
         "kr_cache has rows of 8 bytes; cache_mode PA_NZ needs a multiple of 32"},
        {130,
         {},
         [](MlaCase&, Request& r) { r.cache_mode = "PA_NZ"; },
         "cache_mode is PA_NZ; with kv_cache_quant_mode 3 allowed are PA_BSND, PA_BLK_BSND, BSND, "
         "TND"},
        {120,
         [](MlaCaseOptions& o) { o.dr = 4; },
         [](MlaCase&, Request& r) { r.cache_mode = "PA_NZ"; },
         "kr_cache has rows of 4 bytes; cache_mode PA_NZ needs a multiple of 32"},
        {130,
         [](MlaCaseOptions& o) { o.tile_size = 2; },
         [](MlaCase&, Request& r) { r.cache_mode = "PA_NZ"; },
         "cache_mode is PA_NZ; with kv_cache_quant_mode 3 allowed are PA_BSND, PA_BLK_BSND, BSND, "
         "TND"},
    });
}

TEST(MlaPrologV3Refusals, NameTheValueOfATensor) {
    const auto block_mode = [](MlaCaseOptions& o) { o.cache_mode = "PA_BLK_BSND"; };
    expect_refusals({
        {0,
         {},
         [](MlaCase& c, Request&) { c.cache_index.as<int64_t>()[3] = 36; },
         "cache_index[3] is 36; allowed are -1 (write nothing) and, below 36, the cache's rows"},
        {0,
         {},
         [](MlaCase& c, Request&) { c.cache_index.as<int64_t>()[14] = -2; },
         "cache_index[14] is -2; allowed are -1 (write nothing) and, below 36, the cache's rows"},
        {0,
         block_mode,
         [](MlaCase& c, Request&) { c.cache_index.as<int64_t>()[1] = 9; },
         "cache_index[1] is 9; allowed are -1 (write nothing) and, below 9, the cache's blocks"},
        {0,
         block_mode,
         [](MlaCase& c, Request&) { c.actual_seq_len.as<int32_t>()[0] = -1; },
         "actual_seq_len[0] is -1; prefix sums never fall, at least 0 is allowed"},
        {0,
         block_mode,
         [](MlaCase& c, Request&) { c.actual_seq_len.as<int32_t>()[1] = 1; },
         "actual_seq_len[1] is 1; prefix sums never fall, at least 2 is allowed"},
        {0,
         block_mode,
         [](MlaCase& c, Request&) { c.actual_seq_len.as<int32_t>()[2] = 16; },
         "actual_seq_len ends at 16; T is 15"},
        {130,
         {},
         [](MlaCase& c, Request&) { *c.k_nope_clip_alpha.as<float>() = 0.0f; },
         "k_nope_clip_alpha is 0.000000; it must be a positive number"},
    });
}

// Without tokens nothing is written; what is wrong with the index is said all the same.
TEST(MlaPrologV3Refusals, NameTheValueOfATensorWithoutTokens) {
    const auto no_tokens = [](MlaCaseOptions& o) { o.s = 0; };
    const auto no_tokens_in_blocks = [](MlaCaseOptions& o) {
        o.s = 0;
        o.cache_mode = "PA_BLK_BSND";
    };
    static constexpr int64_t kEntries[] = {0, 1, 2};
    const auto three_entries = [](MlaCase&, Request& r) {
        r.cache_index = make_tensor<const void>(kEntries, DType::kInt64, {3});
    };
    expect_refusals({
        {0,
         no_tokens_in_blocks,
         [](MlaCase& c, Request&) { c.actual_seq_len.as<int32_t>()[2] = 7; },
         "actual_seq_len ends at 7; T is 0"},
        {0,
         no_tokens_in_blocks,
         [](MlaCase& c, Request&) { c.actual_seq_len.as<int32_t>()[0] = 5; },
         "actual_seq_len[1] is 0; prefix sums never fall, at least 5 is allowed"},
        {0,
         no_tokens_in_blocks,
         three_entries,
         "cache_index has a last axis of 3; cache_mode PA_BLK_BSND needs 0"},
        {0,
         no_tokens,
         three_entries,
         "cache_index has a last axis of 3; cache_mode PA_BSND needs 0"},
        {0,
         no_tokens_in_blocks,
         [](MlaCase& c, Request& r) {
             r.kv_cache = with_shape(r.kv_cache, {9, 0, 1, 64});
             r.kr_cache = with_shape(r.kr_cache, {9, 0, 1, 32});
             c.actual_seq_len.as<int32_t>()[2] = 7;
         },
         "actual_seq_len ends at 7; T is 0"},
    });
}

TEST(MlaPrologV3Refusals, NameTheSize) {
    expect_refusals({
        {0,
         [](MlaCaseOptions& o) {
             o.dr = 2;
             o.d = 1;
             o.n = 1;
         },
         [](MlaCase&, Request& r) {
             r.weight_uk = with_shape(r.weight_uk, {1, 2, 64});
             r.rope_sin = with_shape(r.rope_sin, {15, 1});
             r.rope_cos = with_shape(r.rope_cos, {15, 1});
             r.weight_dkv_kr = with_shape(r.weight_dkv_kr, {70, 65});
             r.kr_cache = with_shape(r.kr_cache, {9, 4, 1, 1});
             r.query_rope = with_shape(r.query_rope, {15, 1, 1});
         },
         "Dr is 1; it must be even"},
        {0,
         {},
         [](MlaCase&, Request& r) {
             r.weight_uk = with_shape(r.weight_uk, {3, 0, 64});
             r.weight_uq_qr = with_shape(r.weight_uq_qr, {37, 96});
         },
         "D is 0; it must be at least 1"},
        {100,
         {},
         [](MlaCase&, Request& r) {
             constexpr size_t kDeep = 131072;
             r.weight_dq = with_shape(r.weight_dq, {70, kDeep});
             r.weight_uq_qr = with_shape(r.weight_uq_qr, {kDeep, 129});
             r.rmsnorm_gamma_cq = with_shape(r.rmsnorm_gamma_cq, {kDeep});
             r.smooth_scales_cq = {};
             r.query_norm = with_shape(r.query_norm, {15, kDeep});
         },
         "Hcq is 131072; the depth of an int8 matrix is at most 131071"},
        {200,
         {},
         [](MlaCase&, Request& r) {
             constexpr size_t kDeep = 131072;
             r.token_x = with_shape(r.token_x, {15, kDeep});
             r.weight_dq = with_shape(r.weight_dq, {kDeep, 37});
             r.weight_dkv_kr = with_shape(r.weight_dkv_kr, {kDeep, 96});
         },
         "He is 131072; the depth of an int8 matrix is at most 131071"},
    });
}

}  // namespace
}  // namespace afd::ops
