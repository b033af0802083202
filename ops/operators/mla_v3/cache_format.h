// SPDX-License-Identifier: Apache-2.0
#pragma once

// How the MLA caches are stored: which row a token has, where a row's elements lie, and what one
// per-tile quantised row holds. Shared by mla_prolog_v3, which writes, and mla_attention_v3.
//
// Every mode numbers its rows: paged modes block · BlockSize + offset in the block, BSND
// b · S + s, TND the token. Source: seed mla_prolog_v3, docs/specification.md, section 11.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

#include "ops/tensor/tensor_view.h"

namespace afd::ops {

enum class CacheMode : uint8_t {
    kPaBsnd,     // Rows of blocks; cache_index names the row of each token.
    kPaNz,       // The same rows; inside a block 32-byte columns, each BlockSize rows high.
    kPaBlkBsnd,  // As kPaBsnd, but cache_index names the blocks of each sequence.
    kPaBlkNz,    // As kPaNz, likewise.
    kBsnd,       // [B, S]: a place for every token.
    kTnd,        // [T]: a place for every token.
};

// "PA_BSND", ...; the seed's names.
std::string_view name_of(CacheMode mode);
std::optional<CacheMode> parse_cache_mode(std::string_view name);

constexpr bool is_paged(CacheMode mode) {
    return mode != CacheMode::kBsnd && mode != CacheMode::kTnd;
}
constexpr bool is_nz(CacheMode mode) {
    return mode == CacheMode::kPaNz || mode == CacheMode::kPaBlkNz;
}
constexpr bool is_block_indexed(CacheMode mode) {
    return mode == CacheMode::kPaBlkBsnd || mode == CacheMode::kPaBlkNz;
}

// The values of kv_cache_quant_mode.
enum class KvQuant : int64_t { kNone = 0, kPerTensor = 1, kPerChannel = 2, kPerTile = 3 };

// One cache tensor as numbered rows of `row_bytes` bytes.
struct CacheRows {
    static constexpr size_t kColumnBytes = 32;

    size_t num_rows = 0;
    size_t row_bytes = 0;
    size_t block_rows = 0;  // Rows of a block; used with columns only.
    bool in_columns = false;

    // The rows of a cache tensor; its last axis is the row. REQUIRES: a rank of 3 or 4 that fits
    // the mode; with an NZ mode, row_bytes % 32 == 0.
    static CacheRows of(CacheMode mode, const ConstTensorView& cache);

    // Where byte `byte` of row `row` lies. REQUIRES: row < num_rows, byte < row_bytes.
    size_t offset(size_t row, size_t byte) const {
        if (!in_columns) return row * row_bytes + byte;
        const size_t first = row / block_rows * block_rows * row_bytes;
        const size_t column = byte / kColumnBytes;
        return first + (column * block_rows + row % block_rows) * kColumnBytes +
               byte % kColumnBytes;
    }

    void store(void* cache, size_t row, const void* values) const {
        for_each_piece(row, [&](size_t at, size_t from, size_t bytes) {
            std::memcpy(static_cast<std::byte*>(cache) + at,
                        static_cast<const std::byte*>(values) + from,
                        bytes);
        });
    }

    void load(const void* cache, size_t row, void* values) const {
        for_each_piece(row, [&](size_t at, size_t from, size_t bytes) {
            std::memcpy(static_cast<std::byte*>(values) + from,
                        static_cast<const std::byte*>(cache) + at,
                        bytes);
        });
    }

  private:
    // Calls piece(offset in the cache, offset in the row, bytes) for what lies in one go.
    template <typename Piece>
    void for_each_piece(size_t row, const Piece& piece) const {
        const size_t step = in_columns ? kColumnBytes : row_bytes;
        for (size_t byte = 0; byte < row_bytes; byte += step) piece(offset(row, byte), byte, step);
    }
};

// A per-tile quantised row: `latent` int8 | `rope` bf16 | one fp32 scale a tile. With the seed's
// sizes (512, 64, 128) it has 656 bytes.
struct TileRow {
    size_t latent = 0;  // A multiple of tile_size.
    size_t rope = 0;
    size_t tile_size = 0;

    size_t num_tiles() const { return latent / tile_size; }
    size_t rope_offset() const { return latent; }
    size_t scales_offset() const { return latent + 2 * rope; }
    size_t bytes() const { return scales_offset() + 4 * num_tiles(); }
};
static_assert(sizeof(Bf16) == 2 && sizeof(float) == 4, "TileRow counts in these");

}  // namespace afd::ops
