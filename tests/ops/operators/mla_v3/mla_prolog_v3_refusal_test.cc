// SPDX-License-Identifier: Apache-2.0

// Scenarios, attributes, dtypes and missing or superfluous tensors that mla_prolog_v3 refuses.

#include <gtest/gtest.h>

#include <limits>

#include "tests/ops/operators/mla_v3/mla_prolog_refusal.h"

namespace afd::ops {
namespace {

using test::expect_refusals;
using test::MlaCase;
using test::MlaCaseOptions;
using test::with_shape;
using Request = MlaPrologV3Request;

// Covers: mla_prolog_v3 scenario=220,330,331
TEST(MlaPrologV3Refusals, NameTheScenarioThatIsMeant) {
    const auto modes = [](int64_t weight, int64_t kv, int64_t query) {
        return [=](MlaCase&, Request& r) {
            r.weight_quant_mode = weight;
            r.kv_cache_quant_mode = kv;
            r.query_quant_mode = query;
        };
    };
    expect_refusals({
        {0,
         {},
         modes(2, 2, 0),
         "weight_quant_mode 2, kv_cache_quant_mode 2, query_quant_mode 0 is not a scenario; the "
         "one meant is 120: weight_quant_mode 1, kv_cache_quant_mode 2, query_quant_mode 0"},
        {0,
         {},
         modes(3, 3, 0),
         "weight_quant_mode 3, kv_cache_quant_mode 3, query_quant_mode 0 is not a scenario; the "
         "one meant is 130: weight_quant_mode 1, kv_cache_quant_mode 3, query_quant_mode 0"},
        {0,
         {},
         modes(3, 3, 1),
         "weight_quant_mode 3, kv_cache_quant_mode 3, query_quant_mode 1 is not a scenario; the "
         "one meant is 231: weight_quant_mode 2, kv_cache_quant_mode 3, query_quant_mode 1"},
        {0, {}, modes(3, 0, 0), "weight_quant_mode is 3; allowed are 0, 1, 2"},
        {0, {}, modes(-1, 0, 0), "weight_quant_mode is -1; allowed are 0, 1, 2"},
        {0, {}, modes(0, 4, 0), "kv_cache_quant_mode is 4; allowed are 0, 1, 2, 3"},
        {0, {}, modes(0, 0, 2), "query_quant_mode is 2; allowed are 0, 1"},
        {0,
         {},
         modes(0, 1, 0),
         "weight_quant_mode 0, kv_cache_quant_mode 1, query_quant_mode 0 is not a scenario; "
         "allowed are 000, 100, 120, 130, 200, 211, 230, 231"},
        {211,
         {},
         modes(2, 1, 0),
         "weight_quant_mode 2, kv_cache_quant_mode 1, query_quant_mode 0 is not a scenario; "
         "allowed are 000, 100, 120, 130, 200, 211, 230, 231"},
    });
}

TEST(MlaPrologV3Refusals, NameTheAttribute) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const float infinity = std::numeric_limits<float>::infinity();
    expect_refusals({
        {0,
         {},
         [](MlaCase&, Request& r) { r.cache_mode = "PA"; },
         "cache_mode is \"PA\"; allowed are PA_BSND, PA_NZ, PA_BLK_BSND, PA_BLK_NZ, BSND, TND"},
        {0,
         {},
         [=](MlaCase&, Request& r) { r.rmsnorm_epsilon_cq = nan; },
         "rmsnorm_epsilon_cq is not a number"},
        {0,
         {},
         [](MlaCase&, Request& r) { r.rmsnorm_epsilon_ckv = -1.0f; },
         "rmsnorm_epsilon_ckv is -1.000000; it must be a finite number, not negative"},
        {0,
         {},
         [=](MlaCase&, Request& r) { r.qc_qr_scale = infinity; },
         "qc_qr_scale is inf; it must be a finite number"},
        {0, {}, [=](MlaCase&, Request& r) { r.kc_scale = nan; }, "kc_scale is not a number"},
        {0,
         {},
         [](MlaCase&, Request& r) { r.ckvkr_repo_mode = 1; },
         "ckvkr_repo_mode is 1; with kv_cache_quant_mode 0 it must be 0"},
        {130,
         {},
         [](MlaCase&, Request& r) { r.ckvkr_repo_mode = 0; },
         "ckvkr_repo_mode is 0; with kv_cache_quant_mode 3 it must be 1"},
        {0,
         {},
         [](MlaCase&, Request& r) { r.ckvkr_repo_mode = 2; },
         "ckvkr_repo_mode is 2; allowed are 0, 1"},
        {231,
         {},
         [](MlaCase&, Request& r) { r.quant_scale_repo_mode = 0; },
         "quant_scale_repo_mode is 0; with kv_cache_quant_mode 3 it must be 1"},
        {130,
         {},
         [](MlaCase&, Request& r) { r.tile_size = 0; },
         "tile_size is 0; allowed are 1 to 2147483647"},
        {130,
         {},
         [](MlaCase&, Request& r) { r.tile_size = 48; },
         "tile_size is 48; it must divide Hckv, which is 64"},
    });
}

// The dtype table of the seed, row by row where a scenario changes it.
TEST(MlaPrologV3Refusals, NameTheDtypeThatTheScenarioNeeds) {
    expect_refusals({
        {0,
         {},
         [](MlaCase&, Request& r) { r.token_x.dtype = DType::kInt8; },
         "token_x has dtype int8; scenario 000 needs bf16"},
        {0,
         {},
         [](MlaCase&, Request& r) { r.token_x.dtype = DType::kFp32; },
         "token_x has dtype fp32; allowed are bf16, int8"},
        {200,
         {},
         [](MlaCase&, Request& r) { r.token_x.dtype = DType::kBf16; },
         "token_x has dtype bf16; scenario 200 needs int8"},
        {100,
         {},
         [](MlaCase&, Request& r) { r.weight_dq.dtype = DType::kInt8; },
         "weight_dq has dtype int8; scenario 100 needs bf16"},
        {100,
         {},
         [](MlaCase&, Request& r) { r.weight_uq_qr.dtype = DType::kBf16; },
         "weight_uq_qr has dtype bf16; scenario 100 needs int8"},
        {211,
         {},
         [](MlaCase&, Request& r) { r.weight_dkv_kr.dtype = DType::kBf16; },
         "weight_dkv_kr has dtype bf16; scenario 211 needs int8"},
        {211,
         {},
         [](MlaCase&, Request& r) { r.weight_uk.dtype = DType::kInt8; },
         "weight_uk has dtype int8; allowed are bf16"},
        {0,
         {},
         [](MlaCase&, Request& r) { r.rmsnorm_gamma_cq.dtype = DType::kFp32; },
         "rmsnorm_gamma_cq has dtype fp32; allowed are bf16"},
        {0,
         {},
         [](MlaCase&, Request& r) { r.rmsnorm_gamma_ckv.dtype = DType::kFp32; },
         "rmsnorm_gamma_ckv has dtype fp32; allowed are bf16"},
        {0,
         {},
         [](MlaCase&, Request& r) { r.rope_sin.dtype = DType::kFp32; },
         "rope_sin has dtype fp32; allowed are bf16"},
        {0,
         {},
         [](MlaCase&, Request& r) { r.rope_cos.dtype = DType::kFp16; },
         "rope_cos has dtype fp16; allowed are bf16"},
        {200,
         {},
         [](MlaCase&, Request& r) { r.kv_cache.dtype = DType::kInt8; },
         "kv_cache has dtype int8; scenario 200 needs bf16"},
        {120,
         {},
         [](MlaCase&, Request& r) { r.kv_cache.dtype = DType::kBf16; },
         "kv_cache has dtype bf16; scenario 120 needs int8"},
        {120,
         {},
         [](MlaCase&, Request& r) { r.kr_cache.dtype = DType::kBf16; },
         "kr_cache has dtype bf16; scenario 120 needs int8"},
        {211,
         {},
         [](MlaCase&, Request& r) { r.kr_cache.dtype = DType::kInt8; },
         "kr_cache has dtype int8; scenario 211 needs bf16"},
        {0,
         {},
         [](MlaCase&, Request& r) { r.cache_index.dtype = DType::kInt32; },
         "cache_index has dtype int32; allowed are int64"},
        {200,
         {},
         [](MlaCase&, Request& r) { r.dequant_scale_x.dtype = DType::kBf16; },
         "dequant_scale_x has dtype bf16; allowed are fp32"},
        {231,
         {},
         [](MlaCase&, Request& r) { r.query.dtype = DType::kBf16; },
         "query has dtype bf16; scenario 231 needs int8"},
        {230,
         {},
         [](MlaCase&, Request& r) { r.query.dtype = DType::kInt8; },
         "query has dtype int8; scenario 230 needs bf16"},
        {100,
         {},
         [](MlaCase&, Request& r) { r.query_norm.dtype = DType::kBf16; },
         "query_norm has dtype bf16; scenario 100 needs int8"},
        {211,
         {},
         [](MlaCase&, Request& r) { r.query_rope.dtype = DType::kInt8; },
         "query_rope has dtype int8; allowed are bf16"},
    });
}

TEST(MlaPrologV3Refusals, NameTheDtypeOfEveryScaleAndIndex) {
    const auto as = [](ConstTensorView Request::*tensor, DType dtype) {
        return [=](MlaCase&, Request& r) { (r.*tensor).dtype = dtype; };
    };
    const auto output_as = [](TensorView Request::*tensor, DType dtype) {
        return [=](MlaCase&, Request& r) { (r.*tensor).dtype = dtype; };
    };
    const auto fp16 = DType::kFp16;
    expect_refusals({
        {200,
         {},
         as(&Request::dequant_scale_w_dq, fp16),
         "dequant_scale_w_dq has dtype fp16; allowed are fp32"},
        {100,
         {},
         as(&Request::dequant_scale_w_uq_qr, fp16),
         "dequant_scale_w_uq_qr has dtype fp16; allowed are fp32"},
        {200,
         {},
         as(&Request::dequant_scale_w_dkv_kr, fp16),
         "dequant_scale_w_dkv_kr has dtype fp16; allowed are fp32"},
        {120,
         {},
         as(&Request::quant_scale_ckv, fp16),
         "quant_scale_ckv has dtype fp16; allowed are fp32"},
        {120,
         {},
         as(&Request::quant_scale_ckr, fp16),
         "quant_scale_ckr has dtype fp16; allowed are fp32"},
        {100,
         {},
         as(&Request::smooth_scales_cq, fp16),
         "smooth_scales_cq has dtype fp16; allowed are fp32"},
        {130,
         {},
         as(&Request::k_nope_clip_alpha, fp16),
         "k_nope_clip_alpha has dtype fp16; allowed are fp32"},
        {0,
         [](MlaCaseOptions& o) { o.cache_mode = "PA_BLK_BSND"; },
         as(&Request::actual_seq_len, DType::kInt64),
         "actual_seq_len has dtype int64; allowed are int32"},
        {211,
         {},
         output_as(&Request::dequant_scale_q_nope, DType::kBf16),
         "dequant_scale_q_nope has dtype bf16; allowed are fp32"},
        {100,
         {},
         output_as(&Request::dequant_scale_q_norm, DType::kBf16),
         "dequant_scale_q_norm has dtype bf16; allowed are fp32"},
    });
}

// The scenario table of the seed: what must be passed, and what is not used.
TEST(MlaPrologV3Refusals, NameTheTensorThatTheScenarioNeedsOrDoesNotUse) {
    const auto drop = [](ConstTensorView Request::*tensor) {
        return [=](MlaCase&, Request& r) { r.*tensor = {}; };
    };
    const auto drop_output = [](TensorView Request::*tensor) {
        return [=](MlaCase&, Request& r) { r.*tensor = {}; };
    };
    // One element too many is as good as a whole tensor: presence is judged before shape.
    const auto add = [](ConstTensorView Request::*tensor) {
        return [=](MlaCase&, Request& r) { r.*tensor = with_shape(r.token_x, {1}); };
    };
    const auto add_output = [](TensorView Request::*tensor) {
        return [=](MlaCase&, Request& r) { r.*tensor = with_shape(r.query, {1}); };
    };
    expect_refusals({
        {0, {}, drop(&Request::token_x), "token_x is missing; it must be [T, He] | [B, S, He]"},
        {0,
         {},
         drop(&Request::weight_uq_qr),
         "weight_uq_qr is missing; it must be [Hcq, N*D+N*Dr] | [ceil(Nq/c0_uq), ceil(Hcq/16), "
         "16, c0_uq]"},
        {0, {}, drop(&Request::weight_uk), "weight_uk is missing; it must be [N, D, Hckv]"},
        {0,
         {},
         drop(&Request::rmsnorm_gamma_cq),
         "rmsnorm_gamma_cq is missing; weight_dq is given"},
        {0, {}, drop(&Request::cache_index), "cache_index is missing; cache_mode is PA_BSND"},
        {0, {}, drop_output(&Request::kr_cache), "kr_cache is missing; kv_cache_quant_mode is 0"},
        {0,
         {},
         drop_output(&Request::query_norm),
         "query_norm is missing; query_norm_flag is true"},
        {100,
         {},
         drop_output(&Request::dequant_scale_q_norm),
         "dequant_scale_q_norm is missing; query_norm_flag is true and weight_quant_mode is 1"},
        {211,
         {},
         drop_output(&Request::dequant_scale_q_nope),
         "dequant_scale_q_nope is missing; query_quant_mode is 1"},
        {200,
         {},
         drop(&Request::dequant_scale_x),
         "dequant_scale_x is missing; weight_quant_mode is 2"},
        {200,
         {},
         drop(&Request::dequant_scale_w_dq),
         "dequant_scale_w_dq is missing; weight_quant_mode is 2"},
        {100,
         {},
         drop(&Request::dequant_scale_w_uq_qr),
         "dequant_scale_w_uq_qr is missing; weight_quant_mode is 1"},
        {200,
         {},
         drop(&Request::dequant_scale_w_dkv_kr),
         "dequant_scale_w_dkv_kr is missing; weight_quant_mode is 2"},
        {211,
         {},
         drop(&Request::quant_scale_ckv),
         "quant_scale_ckv is missing; kv_cache_quant_mode is 1"},
        {120,
         {},
         drop(&Request::quant_scale_ckr),
         "quant_scale_ckr is missing; kv_cache_quant_mode is 2"},
        {0,
         [](MlaCaseOptions& o) { o.cache_mode = "PA_BLK_BSND"; },
         drop(&Request::actual_seq_len),
         "actual_seq_len is missing; cache_mode is PA_BLK_BSND on axes [T]"},
        {0,
         {},
         add(&Request::dequant_scale_x),
         "dequant_scale_x is given, but weight_quant_mode is 0; leave it out"},
        {100,
         {},
         add(&Request::dequant_scale_w_dq),
         "dequant_scale_w_dq is given, but weight_quant_mode is 1; leave it out"},
        {0,
         {},
         add(&Request::dequant_scale_w_uq_qr),
         "dequant_scale_w_uq_qr is given, but weight_quant_mode is 0; leave it out"},
        {100,
         {},
         add(&Request::dequant_scale_w_dkv_kr),
         "dequant_scale_w_dkv_kr is given, but weight_quant_mode is 1; leave it out"},
        {200,
         {},
         add(&Request::quant_scale_ckv),
         "quant_scale_ckv is given, but kv_cache_quant_mode is 0; leave it out"},
        {211,
         {},
         add(&Request::quant_scale_ckr),
         "quant_scale_ckr is given, but kv_cache_quant_mode is 1; leave it out"},
        {0,
         {},
         add(&Request::smooth_scales_cq),
         "smooth_scales_cq is given, but weight_quant_mode is 0; leave it out"},
        {211,
         {},
         add(&Request::k_nope_clip_alpha),
         "k_nope_clip_alpha is given, but kv_cache_quant_mode is 1; leave it out"},
        {130,
         {},
         add_output(&Request::kr_cache),
         "kr_cache is given, but kv_cache_quant_mode is 3; leave it out"},
        {200,
         {},
         add_output(&Request::dequant_scale_q_nope),
         "dequant_scale_q_nope is given, but query_quant_mode is 0; leave it out"},
        {0,
         {},
         [](MlaCase&, Request& r) { r.query_norm_flag = false; },
         "query_norm is given, but query_norm_flag is false; leave it out"},
        {0,
         {},
         add_output(&Request::dequant_scale_q_norm),
         "dequant_scale_q_norm is given, but query_norm_flag is true and weight_quant_mode is 0; "
         "leave it out"},
        {0,
         [](MlaCaseOptions& o) { o.cache_mode = "TND"; },
         add(&Request::cache_index),
         "cache_index is given, but cache_mode is TND; leave it out"},
    });
}

}  // namespace
}  // namespace afd::ops
