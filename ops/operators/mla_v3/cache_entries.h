// SPDX-License-Identifier: Apache-2.0
#pragma once

// The entries that the records of mla_prolog_v3, which writes the cache, and mla_attention_v3,
// which reads it, share, bound to the request of each.

#include <cstdint>
#include <string_view>

#include "ops/record/operator_spec.h"

namespace afd::ops::mla_cache {

inline constexpr int64_t kOffOrOn[] = {0, 1};
inline constexpr int64_t kQuantModes[] = {0, 1, 2, 3};
inline constexpr std::string_view kModes[] = {
    "PA_BSND", "PA_NZ", "PA_BLK_BSND", "PA_BLK_NZ", "BSND", "TND"};

template <typename Request>
constexpr AttributeSpec cache_mode(std::string_view meaning) {
    return {"cache_mode", bind<&Request::cache_mode>(), "\"PA_BSND\"", {}, 0, 0, meaning, kModes};
}

template <typename Request>
inline constexpr AttributeSpec kKvCacheQuantMode = {
    "kv_cache_quant_mode",
    bind<&Request::kv_cache_quant_mode>(),
    "0",
    kQuantModes,
    0,
    3,
    "bf16; int8 per tensor; int8 per channel; int8 per tile"};

template <typename Request>
inline constexpr AttributeSpec kQueryQuantMode = {"query_quant_mode",
                                                  bind<&Request::query_quant_mode>(),
                                                  "0",
                                                  kOffOrOn,
                                                  0,
                                                  1,
                                                  "bf16; int8 with a scale a token and head"};

template <typename Request>
inline constexpr AttributeSpec kTileSize = {"tile_size",
                                            bind<&Request::tile_size>(),
                                            "128",
                                            {},
                                            1,
                                            INT32_MAX,
                                            "elements of a tile; used with kv_cache_quant_mode 3"};

template <typename Request>
constexpr TensorSpec query(TensorRole role, std::string_view meaning) {
    return {"query",
            bind<&Request::query>(),
            role,
            {DType::kBf16, DType::kInt8},
            "[T, N, Hckv] | [B, S, N, Hckv]",
            meaning};
}

template <typename Request>
constexpr TensorSpec query_rope(TensorRole role) {
    return {"query_rope",
            bind<&Request::query_rope>(),
            role,
            {DType::kBf16},
            "[T, N, Dr] | [B, S, N, Dr]",
            "rotated queries"};
}

template <typename Request>
constexpr TensorSpec dequant_scale_q_nope(TensorRole role) {
    return {"dequant_scale_q_nope",
            bind<&Request::dequant_scale_q_nope>(),
            role,
            {DType::kFp32},
            "[T, N, 1]",
            "of query; with query_quant_mode 1"};
}

template <typename Request>
constexpr TensorSpec quant_scale_ckv(std::string_view meaning) {
    return {"quant_scale_ckv",
            bind<&Request::quant_scale_ckv>(),
            TensorRole::kOptionalInput,
            {DType::kFp32},
            "[1] | [1, Hckv]",
            meaning};
}

template <typename Request>
constexpr TensorSpec quant_scale_ckr(std::string_view meaning) {
    return {"quant_scale_ckr",
            bind<&Request::quant_scale_ckr>(),
            TensorRole::kOptionalInput,
            {DType::kFp32},
            "[1, Dr]",
            meaning};
}

inline constexpr std::string_view kRowsRule = "NZ cache modes need rows of a multiple of 32 bytes.";

}  // namespace afd::ops::mla_cache
