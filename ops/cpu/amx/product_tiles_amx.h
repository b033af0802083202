// SPDX-License-Identifier: Apache-2.0
#pragma once

// Up to 32 rows and one panel on tiles, of any element: a panel has a line of two tiles' columns
// for every 4 bytes of depth (ops/format/packed_shape.h), so that a tile of B is every second line.
// Compiled into ops/cpu/amx/kernels_amx.cc and tests only.
//
// Four sums are under way, which a product's latency of about 52 cycles at 16 cycles each needs. Up
// to 16 rows have two, 52 cycles for a step of 2 KiB of weights instead of 32: alone they wait for
// memory or for the unpacking of weights, and behind blocks of 32 rows they are a small part.

#include <algorithm>
#include <cstddef>

#include "ops/cpu/amx/padded_rows_amx.h"
#include "ops/cpu/amx/tile_unit_amx.h"
#include "ops/format/packed_shape.h"

namespace afd::ops::cpu {
namespace {

// Rows of one block.
constexpr size_t kAmxRows = 2 * kTileRows;

// Bytes of a panel for 4 bytes of depth, and for one product.
constexpr size_t kGroupBytes = 4 * kPanelColumns;
constexpr size_t kStepBytes = kTileGroups * kGroupBytes;

// Bytes between the rows of the sums of one panel alone.
constexpr size_t kSumRow = kPanelColumns * 4;

// Rows of a block that begin at x, `stride` bytes apart.
struct TileRowsOfX {
    const std::byte* x;
    size_t stride;
    size_t num_rows;  // At most kAmxRows

    TileRowsOfX from(size_t bytes) const { return {x + bytes, stride, num_rows}; }
};

// The tiles of a block of rows and a panel: C is 0 and 1 for the first 16 rows, 2 and 3 for the
// others, A 4 and 5, B 6 and 7. kBottom: there are others. Sums stand `stride` bytes apart.
template <typename Unit, bool kBottom>
struct BlockTiles {
    // For products of `groups` groups of depth; the tiles are zero.
    static void configure(size_t num_rows, size_t groups = kTileGroups) {
        const size_t top = kBottom ? kTileRows : num_rows;
        const size_t bottom = num_rows - top;
        TileConfiguration sizes;
        for (const size_t c : {0, 1}) sizes.set(c, top, kTileRowBytes);
        for (const size_t c : {2, 3}) sizes.set(c, bottom, kTileRowBytes);
        sizes.set(4, top, groups * 4);
        sizes.set(5, bottom, groups * 4);
        for (const size_t b : {6, 7}) sizes.set(b, groups, kTileRowBytes);
        Unit::configure(sizes);
    }

    static void zero() {
        for_each([]<int kTile>(size_t) { Unit::template zero<kTile>(); }, 0);
    }
    static void load(const std::byte* sums, size_t stride) {
        for_each([&]<int kTile>(size_t at) { Unit::template load<kTile>(sums + at, stride); },
                 stride);
    }
    static void store(std::byte* sums, size_t stride) {
        for_each([&]<int kTile>(size_t at) { Unit::template store<kTile>(sums + at, stride); },
                 stride);
    }
    // With what `sums` holds, or with 0.
    static void begin(bool goes_on, const std::byte* sums, size_t stride) {
        if (goes_on) {
            load(sums, stride);
        } else {
            zero();
        }
    }

    // One step of depth; between() is called four times, among the loads.
    // kAdd.template operator()<Unit, C, A, B>() is the instruction.
    template <auto kAdd, typename Between>
    [[gnu::always_inline]] static void add(const TileRowsOfX& rows,
                                           const std::byte* weights,
                                           const Between& between) {
        between();
        Unit::template load<4>(rows.x, rows.stride);
        between();
        Unit::template load<6>(weights, kGroupBytes);
        between();
        Unit::template load<7>(weights + kTileRowBytes, kGroupBytes);
        between();
        kAdd.template operator()<Unit, 0, 4, 6>();
        kAdd.template operator()<Unit, 1, 4, 7>();
        if constexpr (kBottom) {
            Unit::template load<5>(rows.x + kTileRows * rows.stride, rows.stride);
            kAdd.template operator()<Unit, 2, 5, 6>();
            kAdd.template operator()<Unit, 3, 5, 7>();
        }
    }
    template <auto kAdd>
    [[gnu::always_inline]] static void add(const TileRowsOfX& rows, const std::byte* weights) {
        add<kAdd>(rows, weights, [] {});
    }

    // `bytes` of depth, less than a step, onto the sums that stand there, or onto 0. Configures.
    template <auto kAdd>
    static void add_rest(const TileRowsOfX& rows,
                         size_t bytes,
                         const std::byte* weights,
                         bool goes_on,
                         std::byte* sums,
                         size_t stride) {
        const PaddedRows<kAmxRows> padded(rows.x, rows.stride, rows.num_rows, bytes);
        configure(rows.num_rows, (bytes + 3) / 4);
        begin(goes_on, sums, stride);
        add<kAdd>({padded.row(0), kTileRowBytes, rows.num_rows}, weights);
        store(sums, stride);
    }

  private:
    // Calls body.template operator()<tile>(where its sums stand).
    template <typename Body>
    [[gnu::always_inline]] static void for_each(const Body& body, size_t stride) {
        body.template operator()<0>(0);
        body.template operator()<1>(kTileRowBytes);
        if constexpr (kBottom) {
            body.template operator()<2>(kTileRows * stride);
            body.template operator()<3>(kTileRows * stride + kTileRowBytes);
        }
    }
};

// Calls body.template operator()<BlockTiles>() with those for so many rows.
template <typename Unit, typename Body>
[[gnu::always_inline]] inline void with_tiles(size_t num_rows, const Body& body) {
    if (num_rows > kTileRows) {
        body.template operator()<BlockTiles<Unit, true>>();
    } else {
        body.template operator()<BlockTiles<Unit, false>>();
    }
}

}  // namespace
}  // namespace afd::ops::cpu
