// SPDX-License-Identifier: Apache-2.0

// The record of mla_attention_v3: everything that it takes and gives.

#include <cstdint>
#include <limits>

#include "ops/operators/mla_v3/mla_attention_v3.h"

namespace afd::ops {
namespace {

constexpr int64_t kKvModes[] = {0, 1, 2, 3};
constexpr int64_t kSwitch[] = {0, 1};
constexpr std::string_view kCacheModes[] = {
    "PA_BSND", "PA_NZ", "PA_BLK_BSND", "PA_BLK_NZ", "BSND", "TND"};

constexpr AttributeSpec kAttributes[] = {
    {"softmax_scale", AttributeKind::kFloat, "1.0", {}, 0, 0, "factor of the scores"},
    {"cache_mode",
     AttributeKind::kString,
     "\"PA_BSND\"",
     {},
     0,
     0,
     "blocks of rows; blocks in 32-byte columns; as PA_BSND; as PA_NZ; a row for every sequence "
     "and position; the sequences' rows follow each other",
     kCacheModes},
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
    {"tile_size",
     AttributeKind::kInt,
     "128",
     {},
     1,
     std::numeric_limits<int32_t>::max(),
     "elements of a tile; used with kv_cache_quant_mode 3"},
};

constexpr TensorSpec kTensors[] = {
    {"query",
     TensorRole::kInput,
     {DType::kBf16, DType::kInt8},
     "[T, N, Hckv] | [B, S, N, Hckv]",
     "absorbed queries of mla_prolog_v3; int8 with query_quant_mode 1"},
    {"query_rope",
     TensorRole::kInput,
     {DType::kBf16},
     "[T, N, Dr] | [B, S, N, Dr]",
     "rotated queries"},
    {"dequant_scale_q_nope",
     TensorRole::kOptionalInput,
     {DType::kFp32},
     "[T, N, 1]",
     "of query; with query_quant_mode 1"},
    {"kv_cache",
     TensorRole::kInput,
     {DType::kBf16, DType::kInt8},
     "[BlockNum, BlockSize, Nkv, Dtile] | [Bkv, Skv, Nkv, Dtile] | [Tkv, Nkv, Dtile]",
     "latents; Dtile as in mla_prolog_v3"},
    {"kr_cache",
     TensorRole::kOptionalInput,
     {DType::kBf16, DType::kInt8},
     "[BlockNum, BlockSize, Nkv, Dr] | [Bkv, Skv, Nkv, Dr] | [Tkv, Nkv, Dr]",
     "rotated keys; int8 with kv_cache_quant_mode 2; empty with 3"},
    {"positions",
     TensorRole::kInput,
     {DType::kInt32},
     "[T] | [B, S]",
     "absolute position of each token; it attends to 0 ... its own"},
    {"sequence_index",
     TensorRole::kOptionalInput,
     {DType::kInt32},
     "[T] | [B, S]",
     "sequence of each token; not given on axes [B, S]: b"},
    {"block_table",
     TensorRole::kOptionalInput,
     {DType::kInt32},
     "[Bkv, BlocksMax]",
     "paged modes: the blocks of each sequence in order of position"},
    {"actual_seq_len",
     TensorRole::kOptionalInput,
     {DType::kInt32},
     "[Bkv]",
     "TND: prefix sums of the sequences' cache rows"},
    {"quant_scale_ckv",
     TensorRole::kOptionalInput,
     {DType::kFp32},
     "[1] | [1, Hckv]",
     "as given to mla_prolog_v3"},
    {"quant_scale_ckr", TensorRole::kOptionalInput, {DType::kFp32}, "[1, Dr]", "likewise"},
    {"weight_uv", TensorRole::kInput, {DType::kBf16}, "[N, V, Hckv]", "value up"},
    {"weight_o",
     TensorRole::kOptionalInput,
     {DType::kBf16},
     "[N*V, He]",
     "output projection; not given: none"},
    {"attention_out",
     TensorRole::kOutput,
     {DType::kBf16},
     "[T, He] | [B, S, He]",
     "without weight_o He is N*V: the heads side by side"},
};

constexpr std::string_view kRules[] = {
    "(kv_cache_quant_mode, query_quant_mode) are 00, 11, 20, 30, 31: what mla_prolog_v3 writes.",
    "T is B·S where the axes are not merged; every tensor with these axes has them as query.",
    "kv_cache is int8 with kv_cache_quant_mode 1, 2, 3, kr_cache with 2.",
    "quant_scale_ckv is given with kv_cache_quant_mode 1 as [1] and 2 as [1, Hckv], "
    "quant_scale_ckr with 2, dequant_scale_q_nope with query_quant_mode 1.",
    "block_table is given with the paged modes, actual_seq_len with TND, sequence_index always on "
    "axes [T].",
    "Per tile Hckv is a multiple of tile_size; NZ cache modes are not allowed.",
    "NZ cache modes need rows of a multiple of 32 bytes.",
    "A position is not negative and inside its sequence's rows; the blocks that it reaches are in "
    "[0, BlockNum); a sequence_index is in [0, Bkv); actual_seq_len never falls and ends at most "
    "at Tkv.",
    "Hckv, Dr, N, V and He are at least 1; softmax_scale is a finite number.",
};

}  // namespace

constinit const OperatorSpec kMlaAttentionV3Spec = {
    "mla_attention_v3",
    "absorbed causal attention over the cache of mla_prolog_v3",
    "attention_out = ((softmax((query·ckv + query_rope·kr)·softmax_scale)·ckv)·Wuv)·Wo",
    "specification, section 11",
    kAttributes,
    kTensors,
    kRules,
    {},
};

}  // namespace afd::ops
