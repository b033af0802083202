// SPDX-License-Identifier: Apache-2.0
#include "ops/operators/mla_v3/cache_check.h"

#include <string>

#include "ops/operators/mla_v3/token_axes.h"
#include "proto/failure.h"

namespace afd::ops {
namespace {

template <typename... Values>
Error refuse(const OperatorSpec& spec, Text<Values...> text, const With<Values...>& values = {}) {
    return invalid_argument("{}: {}", with(spec.name, fmt::vformat(text, values)));
}

Result<> check_row(const OperatorSpec& spec,
                   const char* name,
                   const ConstTensorView& cache,
                   CacheMode mode) {
    const size_t bytes = size_from_end(cache, 0) * size_of(cache.dtype);
    if (!is_nz(mode) || bytes % CacheRows::kColumnBytes == 0) return {};
    return refuse(spec,
                  "{} has rows of {} bytes; cache_mode {} needs a multiple of 32",
                  with(name, bytes, name_of(mode)));
}

// Each row of one cache has its place in the other.
Result<> check_leading_axes(const OperatorSpec& spec, const CacheTensors& cache) {
    const ConstTensorView& kv = cache.kv_cache;
    const ConstTensorView& kr = cache.kr_cache;
    for (size_t axis = 0; axis + 1 < kv.rank && kr.num_elements() != 0; ++axis) {
        if (kr.rank == kv.rank && kr.shape[axis] == kv.shape[axis]) continue;
        return refuse(spec,
                      "kr_cache has {} on axis {}; it must be as kv_cache, {}",
                      with(kr.shape[axis], axis, kv.shape[axis]));
    }
    return {};
}

}  // namespace

void require_tiles_fit(OperatorCheck& check,
                       int64_t kv_cache_quant_mode,
                       std::string_view cache_mode,
                       const TileRow& row) {
    if (kv_cache_quant_mode != 3) return;
    // A tile row is int8, bf16 and fp32 side by side; columns of 32 bytes would cut through them.
    check.require(!is_nz(parse_cache_mode(cache_mode).value_or(CacheMode::kPaBsnd)),
                  "cache_mode is {}; with kv_cache_quant_mode 3 allowed are PA_BSND, PA_BLK_BSND, "
                  "BSND, TND",
                  with(cache_mode));
    check.require(row.latent % row.tile_size == 0,
                  "tile_size is {}; it must divide Hckv, which is {}",
                  with(row.tile_size, row.latent));
}

Result<> check_cache_tensors(const OperatorSpec& spec, const CacheTensors& cache) {
    AFD_TRY(check_row(spec, "kv_cache", cache.kv_cache, cache.mode));
    AFD_TRY(check_row(spec, "kr_cache", cache.kr_cache, cache.mode));
    AFD_TRY(check_leading_axes(spec, cache));
    const size_t scale_axes = cache.quant_scale_ckv.rank;
    if (cache.kv_quant == KvQuant::kPerTensor && scale_axes != 1) {
        return refuse(spec,
                      "quant_scale_ckv has 2 axes; with kv_cache_quant_mode 1 it must be [1]");
    }
    if (cache.kv_quant == KvQuant::kPerChannel && scale_axes != 2) {
        return refuse(
            spec, "quant_scale_ckv has 1 axis; with kv_cache_quant_mode 2 it must be [1, Hckv]");
    }
    return {};
}

Result<> check_sizes_given(const OperatorSpec& spec,
                           std::span<const std::pair<const char*, size_t>> sizes) {
    for (const auto& [name, size] : sizes) {
        if (size == 0) return refuse(spec, "{} is 0; it must be at least 1", with(name));
    }
    return {};
}

}  // namespace afd::ops
