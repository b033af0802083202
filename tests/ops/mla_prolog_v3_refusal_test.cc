// SPDX-License-Identifier: Apache-2.0

// What mla_prolog_v3 refuses, with the whole message, and that nothing is written then.

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <functional>
#include <limits>

#include "tests/ops/mla_case.h"

namespace afd::ops {
namespace {

using test::MlaCase;
using test::MlaCaseOptions;
using test::Tensor;
using Request = MlaPrologV3Request;

struct Refusal {
    int scenario;
    std::function<void(MlaCaseOptions&)> options;
    std::function<void(MlaCase&, Request&)> spoil;
    const char* message;  // After "mla_prolog_v3: ".
};

template <typename View>
View with_shape(View view, std::initializer_list<size_t> shape) {
    return make_tensor(view.data, view.dtype, shape);
}

// Every refusal of the list: the fast path, the packing and the reference say the same, and no
// output or cache byte changes.
void expect_refusals(const std::vector<Refusal>& refusals) {
    for (const Refusal& refusal : refusals) {
        MlaCaseOptions options;
        options.weight = refusal.scenario / 100;
        options.kv = refusal.scenario / 10 % 10;
        options.query = refusal.scenario % 10;
        if (refusal.options) refusal.options(options);
        MlaCase one(options);
        // Valid as it stands: the refusal comes from what `spoil` does.
        const MlaPrologV3Weights weights =
            pack_mla_prolog_v3(one.request(), NumericClass::kPortable).value();
        Request request = one.request();
        refusal.spoil(one, request);
        const MlaCase before = one;
        const Workspace workspace(mla_prolog_v3_workspace_bytes(weights.shape, 100));
        SerialParallel serial;
        const auto message = [](const auto& result) {
            return result.ok() ? "accepted" : result.error().message;
        };
        const std::string want = std::string("mla_prolog_v3: ") + refusal.message;
        EXPECT_EQ(message(mla_prolog_v3(request, weights, workspace.bytes(), serial)), want);
        EXPECT_EQ(message(pack_mla_prolog_v3(request, NumericClass::kPortable)), want);
        EXPECT_EQ(message(reference::mla_prolog_v3(request)), want);
        test::expect_same_bytes(one, before);
    }
}

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
         [](MlaCase&, Request& r) {
             // 64 + 2·32 + 4·(64 div 48) bytes.
             r.tile_size = 48;
             r.kv_cache = with_shape(r.kv_cache, {9, 4, 1, 132});
         },
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
         "weight_uq_qr is missing; it must be [Hcq, N*(D+Dr)] | [ceil(Nq/c0_uq), ceil(Hcq/16), "
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
         "weight_dq has shape [69, 37]; it must be [He, Hcq] | [ceil(Hcq/c0), ceil(He/16), 16, c0] "
         "with ceil(Hcq/c0) = 3, ceil(He/16) = 5, c0 = 16"},
        {0,
         {},
         [](MlaCase&, Request& r) {
             r.weight_dkv_kr = with_shape(r.weight_dkv_kr, {6, 5, 16, 32});
         },
         "weight_dkv_kr has shape [6, 5, 16, 32]; it must be [He, Hckv+Dr] | [ceil(Nkr/c0), "
         "ceil(He/16), 16, c0] with ceil(Nkr/c0) = 6, ceil(He/16) = 5, c0 = 16"},
        {0,
         {},
         [](MlaCase&, Request& r) {
             r.rope_cos = with_shape(r.rope_cos, {15, 30});
         },
         "rope_cos has shape [15, 30]; it must be [T, Dr] | [B, S, Dr] with Dr = 32 (rope_sin)"},
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
         "query has shape [15, 3, 63]; it must be [T, N, Hckv] | [B, S, N, Hckv] with N = 3 "
         "(weight_uk), Hckv = 64 (weight_uk)"},
        {0,
         {},
         [](MlaCase&, Request& r) {
             r.kv_cache = with_shape(r.kv_cache, {9, 4, 2, 64});
         },
         "kv_cache has shape [9, 4, 2, 64]; it must be [BlockNum, BlockSize, Nkv, Dtile] | [B, S, "
         "Nkv, Dtile] | [T, Nkv, Dtile] with T = 15, Nkv = 1, Dtile = 64"},
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

TEST(MlaPrologV3Refusals, NameTheCacheModesConstraint) {
    expect_refusals({
        {0,
         {},
         [](MlaCase&, Request& r) {
             r.cache_mode = "BSND";
             r.cache_index = {};
         },
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
         "kv_cache has rows of 144 bytes; cache_mode PA_NZ needs a multiple of 32"},
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
         [](MlaCase& c, Request&) { c.cache_index.data<int64_t>()[3] = 36; },
         "cache_index[3] is 36; allowed are -1 (write nothing) and, below 36, the cache's rows"},
        {0,
         {},
         [](MlaCase& c, Request&) { c.cache_index.data<int64_t>()[14] = -2; },
         "cache_index[14] is -2; allowed are -1 (write nothing) and, below 36, the cache's rows"},
        {0,
         block_mode,
         [](MlaCase& c, Request&) { c.cache_index.data<int64_t>()[1] = 9; },
         "cache_index[1] is 9; allowed are -1 (write nothing) and, below 9, the cache's blocks"},
        {0,
         block_mode,
         [](MlaCase& c, Request&) { c.actual_seq_len.data<int32_t>()[0] = -1; },
         "actual_seq_len[0] is -1; prefix sums never fall, at least 0 is allowed"},
        {0,
         block_mode,
         [](MlaCase& c, Request&) { c.actual_seq_len.data<int32_t>()[1] = 1; },
         "actual_seq_len[1] is 1; prefix sums never fall, at least 2 is allowed"},
        {0,
         block_mode,
         [](MlaCase& c, Request&) { c.actual_seq_len.data<int32_t>()[2] = 16; },
         "actual_seq_len ends at 16; T is 15"},
        {130,
         {},
         [](MlaCase& c, Request&) { *c.k_nope_clip_alpha.data<float>() = 0.0f; },
         "k_nope_clip_alpha is 0.000000; it must be a positive number"},
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
    });
}

// A cache whose ends are the ends of its pages: a byte before or behind it is not mapped.
class GuardedCache {
  public:
    explicit GuardedCache(size_t bytes) : page_(static_cast<size_t>(sysconf(_SC_PAGESIZE))) {
        inner_ = (bytes + page_ - 1) / page_ * page_;
        map_ = static_cast<std::byte*>(
            mmap(nullptr, inner_ + 2 * page_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        EXPECT_NE(map_, MAP_FAILED);
        EXPECT_EQ(mprotect(map_ + page_, inner_, PROT_READ | PROT_WRITE), 0);
        std::memset(map_ + page_, 0x7f, inner_);
    }
    GuardedCache(const GuardedCache&) = delete;
    GuardedCache& operator=(const GuardedCache&) = delete;
    ~GuardedCache() { munmap(map_, inner_ + 2 * page_); }

    std::byte* begin() const { return map_ + page_; }
    std::byte* end() const { return map_ + page_ + inner_; }

  private:
    size_t page_;
    size_t inner_ = 0;
    std::byte* map_ = nullptr;
};

// Goal: nothing is written outside the caches, whatever the index holds. Method: caches that end
// (or begin) at an unmapped page; valid first and last rows are written, every index just outside,
// and the extremes, are refused. Oracle: no fault, and after a refusal no changed byte.
TEST(MlaPrologV3Refusals, LeaveTheMemoryAroundTheCachesAlone) {
    for (MlaCaseOptions options : test::all_scenarios()) {
        for (const std::string mode : {"PA_BSND", "PA_NZ", "PA_BLK_BSND", "PA_BLK_NZ"}) {
            if (options.kv == 3 && mode.ends_with("NZ")) continue;
            options.cache_mode = mode;
            MlaCase one(options);
            const size_t bytes = one.kv_cache.bytes.size();
            const size_t key_bytes = one.kr_cache.bytes.size();
            const GuardedCache latents(bytes);
            const GuardedCache keys(key_bytes + 1);
            int64_t* index = one.cache_index.data<int64_t>();
            const size_t limit = mode.starts_with("PA_BLK")
                                     ? options.block_num
                                     : options.block_num * options.block_size;
            const auto last = static_cast<int64_t>(limit) - 1;
            for (const bool at_end : {true, false}) {
                MlaPrologV3Request r = one.request();
                r.kv_cache.data = at_end ? latents.end() - bytes : latents.begin();
                if (key_bytes != 0) {
                    r.kr_cache.data = at_end ? keys.end() - key_bytes : keys.begin();
                }
                index[0] = 0;
                index[1] = last;
                const MlaPrologV3Weights weights =
                    pack_mla_prolog_v3(r, NumericClass::kPortable).value();
                const Workspace workspace(mla_prolog_v3_workspace_bytes(weights.shape, 15));
                SerialParallel serial;
                EXPECT_TRUE(mla_prolog_v3(r, weights, workspace.bytes(), serial).ok());
                const std::vector<std::byte> before(latents.begin(), latents.end());
                for (const int64_t bad : {last + 1,
                                          int64_t{-2},
                                          std::numeric_limits<int64_t>::max(),
                                          std::numeric_limits<int64_t>::min()}) {
                    index[1] = bad;
                    EXPECT_FALSE(mla_prolog_v3(r, weights, workspace.bytes(), serial).ok());
                    EXPECT_FALSE(reference::mla_prolog_v3(r).ok());
                }
                EXPECT_TRUE(std::equal(before.begin(), before.end(), latents.begin()));
            }
        }
    }
}

}  // namespace
}  // namespace afd::ops
