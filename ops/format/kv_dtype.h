// SPDX-License-Identifier: Apache-2.0
#pragma once

// KvDtype: how an attention worker keeps what attention has written to its cache. Anything but bf16
// is a numeric class of its own: a row is rounded once, when it is written, by itself, and expanded
// to bf16 whenever it is read, so that topology, batch, chunk and replay change nothing.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "ops/format/fp8_layout.h"

namespace afd::ops {

enum class KvDtype : uint8_t {
    kBf16 = 0,
    kInt8 = 1,  // Per tile of kKvTile values, as mla_prolog_v3 with kv_cache_quant_mode 3.
    kFp8 = 2,   // e4m3 with a scale per tile (ops/format/fp8_layout.h).
    // With a given factor for each channel, as mla_prolog_v3 with kv_cache_quant_mode 2: of a
    // latent and a rotated key only.
    kInt8Channel = 3,
};

inline constexpr std::array kKvDtypes = {
    KvDtype::kBf16, KvDtype::kInt8, KvDtype::kFp8, KvDtype::kInt8Channel};

// Values that share a scale; the last tile of a row may be shorter.
inline constexpr size_t kKvTile = 128;

constexpr size_t num_kv_tiles(size_t count) {
    return (count + kKvTile - 1) / kKvTile;
}

// How many of a row of `count` values are in a tile.
constexpr size_t kv_tile_values(size_t count, size_t tile) {
    return std::min(kKvTile, count - tile * kKvTile);
}

static_assert(kKvTile == kFp8BlockValues, "int8 and fp8 rows have the same tiles");

// Bytes of `count` values with their scales: int8 and fp8 take the same.
constexpr size_t kv_tile_row_bytes(size_t count) {
    return count + num_kv_tiles(count) * sizeof(float);
}

constexpr std::string_view name_of(KvDtype dtype) {
    switch (dtype) {
        case KvDtype::kBf16:
            return "bf16";
        case KvDtype::kInt8:
            return "int8";
        case KvDtype::kFp8:
            return "fp8";
        case KvDtype::kInt8Channel:
            return "int8_channel";
    }
    return "unknown";
}

constexpr std::optional<KvDtype> parse_kv_dtype(std::string_view name) {
    for (const KvDtype dtype : kKvDtypes) {
        if (name == name_of(dtype)) return dtype;
    }
    return std::nullopt;
}

}  // namespace afd::ops
