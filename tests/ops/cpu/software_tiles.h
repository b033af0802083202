// SPDX-License-Identifier: Apache-2.0
#pragma once

// The tile registers of AMX in software, for the kernels of ops/cpu/amx/: what runs on a
// processor without them is then all of these kernels but the instructions themselves. What the
// processor answers with a fault ends the program here: a configuration that it does not take, a
// tile without a size or before or after its configuration, factors of sizes that do not match.
// Rows that overlap, which it would take, are refused as well.
//
// In an unnamed namespace, like the kernels: files compiled for AVX-512 and files for any processor
// include it, and the linker must not pick the former's copy for the latter.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "ops/cpu/amx/tile_unit_amx.h"
#include "ops/tensor/bf16.h"
#include "proto/check.h"

namespace afd::ops::test {
namespace {

struct SoftwareTile {
    size_t rows = 0;
    size_t row_bytes = 0;
    uint8_t bytes[16][64] = {};
};

struct SoftwareTiles {
    using Tile = SoftwareTile;
    static constexpr size_t kNumTiles = 8;
    static inline thread_local Tile tiles[kNumTiles];
    static inline thread_local bool is_configured = false;

    static void configure(const cpu::TileConfiguration& configuration) {
        AFD_ASSERT(configuration.palette == 1 && configuration.start_row == 0,
                   "palette %d, start row %d",
                   configuration.palette,
                   configuration.start_row);
        for (const uint8_t byte : configuration.reserved) {
            AFD_ASSERT(byte == 0, "a reserved byte is %d", byte);
        }
        for (size_t i = 0; i < 16; ++i) {
            const size_t rows = configuration.rows[i];
            const size_t row_bytes = configuration.row_bytes[i];
            const size_t rows_max = i < kNumTiles ? cpu::kTileRows : 0;
            AFD_ASSERT(rows <= rows_max && row_bytes <= cpu::kTileRowBytes && row_bytes % 4 == 0 &&
                           (rows == 0) == (row_bytes == 0),
                       "tile %zu: %zu rows of %zu bytes",
                       i,
                       rows,
                       row_bytes);
            if (i < kNumTiles) tiles[i] = {.rows = rows, .row_bytes = row_bytes, .bytes = {}};
        }
        is_configured = true;
    }
    static void release() { is_configured = false; }

    template <int kTile>
    static void zero() {
        std::memset(used(kTile).bytes, 0, sizeof(Tile::bytes));
    }
    template <int kTile>
    static void load(const void* from, size_t stride) {
        Tile& tile = used(kTile);
        check_stride(tile, stride);
        for (size_t row = 0; row < tile.rows; ++row) {
            std::memcpy(
                tile.bytes[row], static_cast<const uint8_t*>(from) + row * stride, tile.row_bytes);
        }
    }
    template <int kTile>
    static void store(void* to, size_t stride) {
        const Tile& tile = used(kTile);
        check_stride(tile, stride);
        for (size_t row = 0; row < tile.rows; ++row) {
            std::memcpy(static_cast<uint8_t*>(to) + row * stride, tile.bytes[row], tile.row_bytes);
        }
    }
    template <int kC, int kA, int kB>
    static void add_bf16() {
        for_each_sum<float>(kC, kA, kB, [](const uint8_t* a, const Tile& b, size_t n, float sum) {
            float even = 0.0f;
            float odd = 0.0f;
            for (size_t k = 0; k < b.rows; ++k) {
                even = fused(element<Bf16>(a, 2 * k), element<Bf16>(b.bytes[k], 2 * n), even);
                odd = fused(element<Bf16>(a, 2 * k + 1), element<Bf16>(b.bytes[k], 2 * n + 1), odd);
            }
            return flushed(flushed(sum) + flushed(even + odd));
        });
    }
    template <int kC, int kA, int kB>
    static void add_bytes() {
        for_each_sum<uint32_t>(
            kC, kA, kB, [](const uint8_t* a, const Tile& b, size_t n, uint32_t sum) {
                for (size_t k = 0; k < b.rows; ++k) {
                    for (size_t i = 0; i < 4; ++i) {
                        const int x = element<int8_t>(a, 4 * k + i);
                        sum += static_cast<uint32_t>(x * b.bytes[k][4 * n + i]);
                    }
                }
                return sum;
            });
    }

  private:
    static Tile& used(size_t tile) {
        AFD_ASSERT(is_configured, "tile %zu is used without a configuration", tile);
        AFD_ASSERT(tiles[tile].rows > 0, "tile %zu has no size", tile);
        return tiles[tile];
    }
    static void check_stride(const Tile& tile, size_t stride) {
        AFD_ASSERT(tile.rows == 1 || stride >= tile.row_bytes,
                   "rows of %zu bytes are %zu apart",
                   tile.row_bytes,
                   stride);
    }

    template <typename T>
    static T element(const uint8_t* bytes, size_t index) {
        T value;
        std::memcpy(&value, bytes + index * sizeof value, sizeof value);
        return value;
    }

    static float flushed(float x) { return std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x; }
    // Whether a result is denormal is decided as if exponents had no least value: at 2^64 times the
    // scale.
    static float fused(Bf16 left, Bf16 right, float sum) {
        const float a = flushed(to_float(left));
        const float b = flushed(to_float(right));
        const float result = std::fmaf(a, b, sum);
        if (result == 0.0f || !(std::fabs(result) <= 0x1p-126f)) return result;
        const bool is_a_smaller = std::fabs(a) < std::fabs(b);
        const float scaled = std::fmaf(
            is_a_smaller ? a * 0x1p64f : a, is_a_smaller ? b : b * 0x1p64f, sum * 0x1p64f);
        return std::fabs(scaled) < 0x1p-62f ? std::copysign(0.0f, result) : result;
    }

    // C[m][n] = body(row m of A, B, n, C[m][n]).
    template <typename Sum, typename Body>
    static void for_each_sum(size_t c, size_t a, size_t b, const Body& body) {
        AFD_ASSERT(c != a && c != b && a != b, "tiles %zu, %zu and %zu are not three", c, a, b);
        Tile& sums = used(c);
        const Tile& left = used(a);
        const Tile& right = used(b);
        AFD_ASSERT(sums.rows == left.rows && left.row_bytes == 4 * right.rows &&
                       sums.row_bytes == right.row_bytes,
                   "C %zu x %zu, A %zu x %zu, B %zu x %zu",
                   sums.rows,
                   sums.row_bytes,
                   left.rows,
                   left.row_bytes,
                   right.rows,
                   right.row_bytes);
        for (size_t m = 0; m < sums.rows; ++m) {
            for (size_t n = 0; n < sums.row_bytes / sizeof(Sum); ++n) {
                const Sum sum = body(left.bytes[m], right, n, element<Sum>(sums.bytes[m], n));
                std::memcpy(sums.bytes[m] + n * sizeof sum, &sum, sizeof sum);
            }
        }
    }
};

}  // namespace
}  // namespace afd::ops::test
