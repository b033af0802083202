// SPDX-License-Identifier: Apache-2.0

// The record of mla_prolog_v3: everything that it takes and gives.

#include <cstdint>
#include <limits>

#include "ops/operators/mla_v3/mla_prolog_v3.h"

namespace afd::ops {
namespace {

constexpr int64_t kWeightModes[] = {0, 1, 2};
constexpr int64_t kKvModes[] = {0, 1, 2, 3};
constexpr int64_t kSwitch[] = {0, 1};
constexpr std::string_view kCacheModes[] = {
    "PA_BSND", "PA_NZ", "PA_BLK_BSND", "PA_BLK_NZ", "BSND", "TND"};

constexpr AttributeSpec kAttributes[] = {
    {"rmsnorm_epsilon_cq", AttributeKind::kFloat, "1e-5", {}, 0, 0, "of the norm of cq"},
    {"rmsnorm_epsilon_ckv", AttributeKind::kFloat, "1e-5", {}, 0, 0, "of the norm of ckv"},
    {"cache_mode",
     AttributeKind::kString,
     "\"PA_BSND\"",
     {},
     0,
     0,
     "cache_index names the row of each token; likewise, blocks in 32-byte columns; "
     "cache_index names the blocks of each sequence; likewise, blocks in 32-byte columns; "
     "row b·S + s; row t",
     kCacheModes},
    {"query_norm_flag",
     AttributeKind::kBool,
     "false",
     kSwitch,
     0,
     1,
     "no query_norm; query_norm, and with weight_quant_mode 1 or 2 dequant_scale_q_norm"},
    {"weight_quant_mode",
     AttributeKind::kInt,
     "0",
     kWeightModes,
     0,
     2,
     "bf16; weight_uq_qr int8; token_x, weight_dq, weight_uq_qr and weight_dkv_kr int8"},
    {"kv_cache_quant_mode",
     AttributeKind::kInt,
     "0",
     kKvModes,
     0,
     3,
     "bf16; int8 per tensor; int8 per channel; int8 per tile"},
    {"query_quant_mode",
     AttributeKind::kInt,
     "0",
     kSwitch,
     0,
     1,
     "bf16; int8 with a scale a token and head"},
    {"ckvkr_repo_mode",
     AttributeKind::kInt,
     "0",
     kSwitch,
     0,
     1,
     "kv_cache and kr_cache; one row in kv_cache (per tile)"},
    {"quant_scale_repo_mode",
     AttributeKind::kInt,
     "0",
     kSwitch,
     0,
     1,
     "scales apart; scales in the row of kv_cache (per tile)"},
    {"tile_size",
     AttributeKind::kInt,
     "128",
     {},
     1,
     std::numeric_limits<int32_t>::max(),
     "elements of a tile; used with kv_cache_quant_mode 3"},
    {"qc_qr_scale", AttributeKind::kFloat, "1.0", {}, 0, 0, "factor of the normalised query"},
    {"kc_scale", AttributeKind::kFloat, "1.0", {}, 0, 0, "factor of the normalised latent"},
};

constexpr TensorSpec kTensors[] = {
    {"token_x",
     TensorRole::kInput,
     {DType::kBf16, DType::kInt8},
     "[T, He] | [B, S, He]",
     "normalised hidden rows; int8 with weight_quant_mode 2"},
    {"weight_dq",
     TensorRole::kOptionalInput,
     {DType::kBf16, DType::kInt8},
     "[He, Hcq] | [ceil(Hcq/c0), ceil(He/16), 16, c0]",
     "query down; not given: no low-rank query"},
    {"weight_uq_qr",
     TensorRole::kInput,
     {DType::kBf16, DType::kInt8},
     "[Hcq, N*D+N*Dr] | [ceil(Nq/c0_uq), ceil(Hcq/16), 16, c0_uq]",
     "query up: D plain and Dr rotated columns a head"},
    {"weight_uk", TensorRole::kInput, {DType::kBf16}, "[N, D, Hckv]", "key up, absorbed"},
    {"weight_dkv_kr",
     TensorRole::kInput,
     {DType::kBf16, DType::kInt8},
     "[He, Hckv+Dr] | [ceil(Nkr/c0), ceil(He/16), 16, c0]",
     "latent and rotated key down"},
    {"rmsnorm_gamma_cq", TensorRole::kOptionalInput, {DType::kBf16}, "[Hcq]", "with weight_dq"},
    {"rmsnorm_gamma_ckv", TensorRole::kInput, {DType::kBf16}, "[Hckv]", "gamma of the latent"},
    {"rope_sin",
     TensorRole::kInput,
     {DType::kBf16},
     "[T, Dr] | [B, S, Dr]",
     "sine of each token's position, full width"},
    {"rope_cos", TensorRole::kInput, {DType::kBf16}, "[T, Dr] | [B, S, Dr]", "cosine, likewise"},
    {"kv_cache",
     TensorRole::kInPlace,
     {DType::kBf16, DType::kInt8},
     "[BlockNum, BlockSize, Nkv, Dtile] | [B, S, Nkv, Dtile] | [T, Nkv, Dtile]",
     "latents; Dtile is Hckv, or per tile the 656 bytes of a row with the seed's sizes"},
    {"kr_cache",
     TensorRole::kOptionalInPlace,
     {DType::kBf16, DType::kInt8},
     "[BlockNum, BlockSize, Nkv, Dr] | [B, S, Nkv, Dr] | [T, Nkv, Dr]",
     "rotated keys; int8 with kv_cache_quant_mode 2; empty with 3"},
    {"cache_index",
     TensorRole::kOptionalInput,
     {DType::kInt64},
     "[?] | [B, ?]",
     "paged modes: row of each token [T] or [B, S], or blocks of each sequence "
     "[sum of ceil(S_i/BlockSize)] or [B, ceil(S/BlockSize)]; -1 skips"},
    {"dequant_scale_x", TensorRole::kOptionalInput, {DType::kFp32}, "[T] | [T, 1]", "of token_x"},
    {"dequant_scale_w_dq",
     TensorRole::kOptionalInput,
     {DType::kFp32},
     "[1, Hcq]",
     "of weight_dq's columns"},
    {"dequant_scale_w_uq_qr",
     TensorRole::kOptionalInput,
     {DType::kFp32},
     "[1, N*D+N*Dr]",
     "of weight_uq_qr's columns"},
    {"dequant_scale_w_dkv_kr",
     TensorRole::kOptionalInput,
     {DType::kFp32},
     "[1, Hckv+Dr]",
     "of weight_dkv_kr's columns"},
    {"quant_scale_ckv",
     TensorRole::kOptionalInput,
     {DType::kFp32},
     "[1] | [1, Hckv]",
     "factor before the latent is rounded to int8: one per tensor, or one a channel"},
    {"quant_scale_ckr",
     TensorRole::kOptionalInput,
     {DType::kFp32},
     "[1, Dr]",
     "the rotated key's, per channel"},
    {"smooth_scales_cq",
     TensorRole::kOptionalInput,
     {DType::kFp32},
     "[1, Hcq] | [1]",
     "factor of the normalised query before it is quantised"},
    {"actual_seq_len",
     TensorRole::kOptionalInput,
     {DType::kInt32},
     "[?]",
     "prefix sums of the sequences' tokens; used with PA_BLK_BSND and PA_BLK_NZ on axes [T]"},
    {"k_nope_clip_alpha",
     TensorRole::kOptionalInput,
     {DType::kFp32},
     "[1]",
     "per tile: the latent is clipped to alpha · max|tile|; not given: 1"},
    {"query",
     TensorRole::kOutput,
     {DType::kBf16, DType::kInt8},
     "[T, N, Hckv] | [B, S, N, Hckv]",
     "absorbed queries"},
    {"query_rope",
     TensorRole::kOutput,
     {DType::kBf16},
     "[T, N, Dr] | [B, S, N, Dr]",
     "rotated queries"},
    {"dequant_scale_q_nope",
     TensorRole::kOptionalOutput,
     {DType::kFp32},
     "[T, N, 1]",
     "of query; with query_quant_mode 1"},
    {"query_norm",
     TensorRole::kOptionalOutput,
     {DType::kBf16, DType::kInt8},
     "[T, Hcq] | [B, S, Hcq]",
     "the normalised query; int8 with weight_quant_mode 1 or 2"},
    {"dequant_scale_q_norm",
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
    "NZ cache modes need rows of a multiple of 32 bytes.",
    "BSND needs axes [B, S], TND axes [T].",
    "cache_index is given with the paged modes only; its values are -1 or in "
    "[0, BlockNum·BlockSize), with the PA_BLK modes in [0, BlockNum).",
    "actual_seq_len never falls, and its last element is T.",
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

}  // namespace

constinit const OperatorSpec kMlaPrologV3Spec = {
    "mla_prolog_v3",
    "queries and cache rows of multi-head latent attention",
    "query = (rms(x·Wdq)·γ·qc_qr_scale·Wuq)·Wuk, query_rope = rope(…·Wqr), "
    "kv_cache = rms(x·Wdkv)·γ·kc_scale, kr_cache = rope(x·Wkr)",
    "seed mla_prolog_v3; specification, section 11",
    kAttributes,
    kTensors,
    kRules,
    kLifted,
};

}  // namespace afd::ops
