// SPDX-License-Identifier: Apache-2.0

#include "ops/operators/mla_v3/cache_format.h"

#include <algorithm>
#include <array>

#include "proto/check.h"

namespace afd::ops {
namespace {

// In the order of CacheMode, whose value is the index.
constexpr std::array<std::string_view, 6> kNames{
    "PA_BSND", "PA_NZ", "PA_BLK_BSND", "PA_BLK_NZ", "BSND", "TND"};

}  // namespace

std::string_view name_of(CacheMode mode) {
    return kNames[static_cast<size_t>(mode)];
}

std::optional<CacheMode> parse_cache_mode(std::string_view name) {
    const auto* found = std::find(kNames.begin(), kNames.end(), name);
    if (found == kNames.end()) return std::nullopt;
    return static_cast<CacheMode>(found - kNames.begin());
}

CacheRows CacheRows::of(CacheMode mode, const ConstTensorView& cache) {
    AFD_ASSERT(cache.rank == (mode == CacheMode::kTnd ? 3 : 4), "cache of rank %zu", cache.rank);
    CacheRows rows;
    rows.num_rows = cache.rank == 3 ? cache.shape[0] : cache.shape[0] * cache.shape[1];
    rows.row_bytes = cache.shape[cache.rank - 1] * size_of(cache.dtype);
    rows.block_rows = cache.shape[1];
    rows.in_columns = is_nz(mode);
    AFD_ASSERT(!rows.in_columns || rows.row_bytes % kColumnBytes == 0,
               "rows of %zu bytes in columns of 32",
               rows.row_bytes);
    return rows;
}

}  // namespace afd::ops
