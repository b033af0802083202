// SPDX-License-Identifier: Apache-2.0

// The record of MlaPrologV3 and the check of a request against it, but for its scenario
// (mla_prolog_v3_scenario.cc) and what needs elements (mla_prolog_v3_plan.cc).

#include <algorithm>
#include <cmath>
#include <string>

#include "ops/operators/mla_v3/cache_check.h"
#include "ops/operators/mla_v3/cache_entries.h"
#include "ops/operators/mla_v3/fractal_nz.h"
#include "ops/operators/mla_v3/mla_prolog_v3_plan.h"
#include "ops/operators/mla_v3/mla_prolog_v3_scenario.h"
#include "ops/operators/mla_v3/token_axes.h"

namespace afd::ops {
namespace {

using Request = MlaPrologV3Request;

constexpr int64_t kWeightModes[] = {0, 1, 2};

constexpr AttributeSpec kAttributes[] = {
    {"rmsnorm_epsilon_cq",
     bind<&Request::rmsnorm_epsilon_cq>(),
     "1e-5",
     {},
     0,
     0,
     "of the norm of cq"},
    {"rmsnorm_epsilon_ckv",
     bind<&Request::rmsnorm_epsilon_ckv>(),
     "1e-5",
     {},
     0,
     0,
     "of the norm of ckv"},
    mla_cache::cache_mode<Request>(
        "cache_index names the row of each token; likewise, blocks in 32-byte columns; "
        "cache_index names the blocks of each sequence; likewise, blocks in 32-byte columns; "
        "row b·S + s; row t"),
    {"query_norm_flag",
     bind<&Request::query_norm_flag>(),
     "false",
     mla_cache::kOffOrOn,
     0,
     1,
     "no query_norm; query_norm, and with weight_quant_mode 1 or 2 dequant_scale_q_norm"},
    {"weight_quant_mode",
     bind<&Request::weight_quant_mode>(),
     "0",
     kWeightModes,
     0,
     2,
     "bf16; weight_uq_qr int8; token_x, weight_dq, weight_uq_qr and weight_dkv_kr int8"},
    mla_cache::kKvCacheQuantMode<Request>,
    mla_cache::kQueryQuantMode<Request>,
    {"ckvkr_repo_mode",
     bind<&Request::ckvkr_repo_mode>(),
     "0",
     mla_cache::kOffOrOn,
     0,
     1,
     "kv_cache and kr_cache; one row in kv_cache (per tile)"},
    {"quant_scale_repo_mode",
     bind<&Request::quant_scale_repo_mode>(),
     "0",
     mla_cache::kOffOrOn,
     0,
     1,
     "scales apart; scales in the row of kv_cache (per tile)"},
    mla_cache::kTileSize<Request>,
    {"qc_qr_scale",
     bind<&Request::qc_qr_scale>(),
     "1.0",
     {},
     0,
     0,
     "factor of the normalised query"},
    {"kc_scale", bind<&Request::kc_scale>(), "1.0", {}, 0, 0, "factor of the normalised latent"},
};

constexpr TensorSpec kTensors[] = {
    {"token_x",
     bind<&Request::token_x>(),
     TensorRole::kInput,
     {DType::kBf16, DType::kInt8},
     "[T, He] | [B, S, He]",
     "normalised hidden rows; int8 with weight_quant_mode 2"},
    {"weight_dq",
     bind<&Request::weight_dq>(),
     TensorRole::kOptionalInput,
     {DType::kBf16, DType::kInt8},
     "[He, Hcq] | [ceil(Hcq/c0), ceil(He/16), 16, c0]",
     "query down; not given: no low-rank query"},
    {"weight_uq_qr",
     bind<&Request::weight_uq_qr>(),
     TensorRole::kInput,
     {DType::kBf16, DType::kInt8},
     "[Hcq, N*D+N*Dr] | [ceil(Nq/c0_uq), ceil(Hcq/16), 16, c0_uq]",
     "query up: D plain and Dr rotated columns a head"},
    {"weight_uk",
     bind<&Request::weight_uk>(),
     TensorRole::kInput,
     {DType::kBf16},
     "[N, D, Hckv]",
     "key up, absorbed"},
    {"weight_dkv_kr",
     bind<&Request::weight_dkv_kr>(),
     TensorRole::kInput,
     {DType::kBf16, DType::kInt8},
     "[He, Hckv+Dr] | [ceil(Nkr/c0), ceil(He/16), 16, c0]",
     "latent and rotated key down"},
    {"rmsnorm_gamma_cq",
     bind<&Request::rmsnorm_gamma_cq>(),
     TensorRole::kOptionalInput,
     {DType::kBf16},
     "[Hcq]",
     "with weight_dq"},
    {"rmsnorm_gamma_ckv",
     bind<&Request::rmsnorm_gamma_ckv>(),
     TensorRole::kInput,
     {DType::kBf16},
     "[Hckv]",
     "gamma of the latent"},
    {"rope_sin",
     bind<&Request::rope_sin>(),
     TensorRole::kInput,
     {DType::kBf16},
     "[T, Dr] | [B, S, Dr]",
     "sine of each token's position, full width"},
    {"rope_cos",
     bind<&Request::rope_cos>(),
     TensorRole::kInput,
     {DType::kBf16},
     "[T, Dr] | [B, S, Dr]",
     "cosine, likewise"},
    {"kv_cache",
     bind<&Request::kv_cache>(),
     TensorRole::kInPlace,
     {DType::kBf16, DType::kInt8},
     "[BlockNum, BlockSize, Nkv, Dtile] | [B, S, Nkv, Dtile] | [T, Nkv, Dtile]",
     "latents; Dtile is Hckv, or per tile the 656 bytes of a row with the seed's sizes"},
    {"kr_cache",
     bind<&Request::kr_cache>(),
     TensorRole::kOptionalInPlace,
     {DType::kBf16, DType::kInt8},
     "[BlockNum, BlockSize, Nkv, Dr] | [B, S, Nkv, Dr] | [T, Nkv, Dr]",
     "rotated keys; int8 with kv_cache_quant_mode 2; empty with 3"},
    {"cache_index",
     bind<&Request::cache_index>(),
     TensorRole::kOptionalInput,
     {DType::kInt64},
     "[?] | [B, ?]",
     "paged modes: row of each token [T] or [B, S], or blocks of each sequence "
     "[sum of ceil(S_i/BlockSize)] or [B, ceil(S/BlockSize)]; -1 skips"},
    {"dequant_scale_x",
     bind<&Request::dequant_scale_x>(),
     TensorRole::kOptionalInput,
     {DType::kFp32},
     "[T] | [T, 1]",
     "of token_x"},
    {"dequant_scale_w_dq",
     bind<&Request::dequant_scale_w_dq>(),
     TensorRole::kOptionalInput,
     {DType::kFp32},
     "[1, Hcq]",
     "of weight_dq's columns"},
    {"dequant_scale_w_uq_qr",
     bind<&Request::dequant_scale_w_uq_qr>(),
     TensorRole::kOptionalInput,
     {DType::kFp32},
     "[1, N*D+N*Dr]",
     "of weight_uq_qr's columns"},
    {"dequant_scale_w_dkv_kr",
     bind<&Request::dequant_scale_w_dkv_kr>(),
     TensorRole::kOptionalInput,
     {DType::kFp32},
     "[1, Hckv+Dr]",
     "of weight_dkv_kr's columns"},
    mla_cache::quant_scale_ckv<Request>(
        "factor before the latent is rounded to int8: one per tensor, or one a channel"),
    mla_cache::quant_scale_ckr<Request>("the rotated key's, per channel"),
    {"smooth_scales_cq",
     bind<&Request::smooth_scales_cq>(),
     TensorRole::kOptionalInput,
     {DType::kFp32},
     "[1, Hcq] | [1]",
     "factor of the normalised query before it is quantised"},
    {"actual_seq_len",
     bind<&Request::actual_seq_len>(),
     TensorRole::kOptionalInput,
     {DType::kInt32},
     "[?]",
     "prefix sums of the sequences' tokens; used with PA_BLK_BSND and PA_BLK_NZ on axes [T]"},
    {"k_nope_clip_alpha",
     bind<&Request::k_nope_clip_alpha>(),
     TensorRole::kOptionalInput,
     {DType::kFp32},
     "[1]",
     "per tile: the latent is clipped to alpha · max|tile|; not given: 1"},
    mla_cache::query<Request>(TensorRole::kOutput, "absorbed queries"),
    mla_cache::query_rope<Request>(TensorRole::kOutput),
    mla_cache::dequant_scale_q_nope<Request>(TensorRole::kOptionalOutput),
    {"query_norm",
     bind<&Request::query_norm>(),
     TensorRole::kOptionalOutput,
     {DType::kBf16, DType::kInt8},
     "[T, Hcq] | [B, S, Hcq]",
     "the normalised query; int8 with weight_quant_mode 1 or 2"},
    {"dequant_scale_q_norm",
     bind<&Request::dequant_scale_q_norm>(),
     TensorRole::kOptionalOutput,
     {DType::kFp32},
     "[T, 1]",
     "of query_norm; with weight_quant_mode 1 or 2"},
};

constexpr std::string_view kRules[] = {
    "Scenarios (weight_quant_mode, kv_cache_quant_mode, query_quant_mode) are 000, 100, 120, 130, "
    "200, 211, 230, 231; 220, 330, 331 are refused and named 120, 130, 231.",
    "T is B·S where the axes are not merged; every tensor with these axes has them as token_x.",
    "A matrix of rank 4 is stored as FRACTAL_NZ: c0 is 16 for bf16 and 32 for int8, Nq is "
    "N*(D+Dr), Nkr is Hckv+Dr.",
    "Without weight_dq, Hcq is He in weight_uq_qr, rmsnorm_gamma_cq is not given, "
    "weight_quant_mode is 0, qc_qr_scale 1 and query_norm_flag false.",
    "dtypes: weight_quant_mode 1 takes weight_uq_qr as int8, 2 also token_x, weight_dq and "
    "weight_dkv_kr; kv_cache is int8 with kv_cache_quant_mode 1, 2, 3, kr_cache with 2.",
    "A scale is given exactly where its scenario uses it: dequant_scale_x, dequant_scale_w_dq, "
    "dequant_scale_w_dkv_kr with weight_quant_mode 2, dequant_scale_w_uq_qr with 1 and 2, "
    "quant_scale_ckv with kv_cache_quant_mode 1 as [1] and 2 as [1, Hckv], quant_scale_ckr "
    "with 2; smooth_scales_cq may be with weight_quant_mode 1 and 2, k_nope_clip_alpha with "
    "kv_cache_quant_mode 3.",
    "Per tile quant_scale_ckv is accepted and not used: the seed's tables disagree, and each "
    "tile has its own scale.",
    "ckvkr_repo_mode and quant_scale_repo_mode are 1 with kv_cache_quant_mode 3, else 0.",
    "Per tile Hckv is a multiple of tile_size and Dtile is Hckv + 2·Dr + 4·Hckv/tile_size bytes; "
    "NZ cache modes are not allowed.",
    mla_cache::kRowsRule,
    "BSND needs axes [B, S], TND axes [T].",
    "cache_index is given with the paged modes only; its values are -1 or in "
    "[0, BlockNum·BlockSize), with the PA_BLK modes in [0, BlockNum).",
    "Where actual_seq_len is used, it never falls, and its last element is T.",
    "He, Hcq, Hckv, N, D and Dr are at least 1, Dr is even, Nkv is 1; the depth of an int8 matrix "
    "is at most 131071.",
    "k_nope_clip_alpha is a positive number; the epsilons are not negative.",
};

constexpr std::string_view kLifted[] = {
    "He 7168 or 7680",
    "Hcq 1536",
    "Hckv 512",
    "D 128",
    "Dr 64",
    "N a power of two up to 128",
    "B at most 65536",
    "BlockSize 16 to 1024 in steps of 16",
    "tile_size 128, and per tile Dtile 656",
    "no empty caches with BSND and TND",
    "matrices only as FRACTAL_NZ",
};

bool is_merged(const MlaPrologV3Request& r) {
    return r.token_x.rank == 2;
}

void check_number(OperatorCheck& check, const char* name, float value, bool may_be_negative) {
    check.attribute(name);
    check.require(std::isfinite(value) && (may_be_negative || value >= 0.0f),
                  "{} is {:f}; it must be a finite {}",
                  with(name, value, may_be_negative ? "number" : "number, not negative"));
}

void check_attributes(const MlaPrologV3Request& r, OperatorCheck& check) {
    check_scenario(r, check);
    check_number(check, "rmsnorm_epsilon_cq", r.rmsnorm_epsilon_cq, false);
    check_number(check, "rmsnorm_epsilon_ckv", r.rmsnorm_epsilon_ckv, false);
    check_number(check, "qc_qr_scale", r.qc_qr_scale, true);
    check_number(check, "kc_scale", r.kc_scale, true);
    check.attribute("cache_mode");
    const int64_t wanted = r.kv_cache_quant_mode == 3 ? 1 : 0;
    const auto repo = [&](const char* name, int64_t value) {
        check.attribute(name);
        check.require(value == wanted,
                      "{} is {}; with kv_cache_quant_mode {} it must be {}",
                      with(name, value, r.kv_cache_quant_mode, wanted));
    };
    repo("ckvkr_repo_mode", r.ckvkr_repo_mode);
    repo("quant_scale_repo_mode", r.quant_scale_repo_mode);
    if (r.kv_cache_quant_mode != 3) check.leave_out("tile_size");
    check.attributes();
}

// The names in shapes that are computed. Tensors of a wrong rank are found by their own check.
void bind_names(const MlaPrologV3Request& r, OperatorCheck& check) {
    const bool has_low_rank = r.weight_dq.num_elements() != 0;
    const size_t hidden = size_from_end(r.token_x, 0);
    const size_t query_depth = has_low_rank ? size_from_end(r.rmsnorm_gamma_cq, 0) : hidden;
    const size_t latent = size_from_end(r.rmsnorm_gamma_ckv, 0);
    const size_t rope = size_from_end(r.rope_sin, 0);
    const size_t query_cols =
        size_from_end(r.weight_uk, 2) * (size_from_end(r.weight_uk, 1) + rope);
    check.bind("T", count_tokens(r.token_x, 1));
    if (!is_merged(r)) {
        check.bind("B", r.token_x.shape[0]);
        check.bind("S", r.token_x.shape[1]);
    }
    if (!has_low_rank) check.bind("Hcq", hidden);
    // Else the norm's weights, which have a single form, would say it.
    if (has_low_rank && r.weight_dq.rank == 2) check.bind("Hcq", r.weight_dq.shape[1]);
    check.bind("Dr", rope);
    check.bind("Nkv", 1);
    const size_t c0 = r.weight_quant_mode == 2 ? 32 : 16;
    const size_t c0_uq = r.weight_quant_mode == 0 ? 16 : 32;
    check.bind("c0", c0);
    check.bind("c0_uq", c0_uq);
    check.bind("ceil(He/16)", fractal_count(hidden, 16));
    check.bind("ceil(Hcq/16)", fractal_count(query_depth, 16));
    check.bind("ceil(Hcq/c0)", fractal_count(query_depth, c0));
    check.bind("ceil(Nq/c0_uq)", fractal_count(query_cols, c0_uq));
    check.bind("ceil(Nkr/c0)", fractal_count(latent + rope, c0));
    const bool per_tile = r.kv_cache_quant_mode == 3;
    const TileRow row{latent, rope, static_cast<size_t>(std::max<int64_t>(1, r.tile_size))};
    require_tiles_fit(check, r.kv_cache_quant_mode, r.cache_mode, row);
    check.bind("Dtile", per_tile ? row.bytes() : latent);
}

// Tensors with token axes have those of token_x.
void check_axes(const MlaPrologV3Request& r, OperatorCheck& check) {
    const auto axes =
        [&](const char* name, const ConstTensorView& view, size_t other_axes, bool is_optional) {
            const size_t wanted = (is_merged(r) ? 1 : 2) + other_axes;
            // One that must be there has its axes even without elements.
            const bool is_left_out = view.num_elements() == 0 && (is_optional || !view.given());
            check.require(is_left_out || view.rank == wanted,
                          "{} has {} axes; token_x has axes {}, so it must have {}",
                          with(name, view.rank, is_merged(r) ? "[T, He]" : "[B, S, He]", wanted));
        };
    axes("rope_sin", r.rope_sin, 1, false);
    axes("rope_cos", r.rope_cos, 1, false);
    axes("cache_index", r.cache_index, 0, true);
    axes("query", r.query, 2, false);
    axes("query_rope", r.query_rope, 2, false);
    axes("query_norm", r.query_norm, 1, true);
}

// What is said of an index or a cache would hide this.
void check_token_axes(const MlaPrologV3Request& r, OperatorCheck& check) {
    const auto mode = parse_cache_mode(r.cache_mode).value_or(CacheMode::kPaBsnd);
    check.require(mode != CacheMode::kBsnd || r.token_x.rank != 2,
                  "cache_mode is BSND; it needs token_x [B, S, He], not [T, He]");
    check.require(mode != CacheMode::kTnd || r.token_x.rank != 3,
                  "cache_mode is TND; it needs token_x [T, He], not [B, S, He]");
}

}  // namespace

constinit const RecordOf<MlaPrologV3Request> kMlaPrologV3Spec = {{
    "mla_prolog_v3",
    "queries and cache rows of multi-head latent attention",
    "query = (rms(x·Wdq)·γ·qc_qr_scale·Wuq)·Wuk, query_rope = rope(…·Wqr), "
    "kv_cache = rms(x·Wdkv)·γ·kc_scale, kr_cache = rope(x·Wkr)",
    "seed mla_prolog_v3; docs/specification.md, section 11",
    kAttributes,
    kTensors,
    kRules,
    kLifted,
    "the same bits in class portable; the other classes add the products of bf16 in other orders",
}};

Result<> check_mla_prolog_v3(const MlaPrologV3Request& r, OperatorCheck& check) {
    check_attributes(r, check);
    check.tensor("token_x");
    check_token_axes(r, check);
    bind_names(r, check);
    check_uses(r, check);
    check_axes(r, check);
    check.tensors();
    return check.finish();
}

}  // namespace afd::ops
