// SPDX-License-Identifier: Apache-2.0
#pragma once

// Tiles of int4, mxfp4 and fp8 weights with AMX: up to 32 rows and one panel, whose weights the
// vector unit unpacks to bf16 a little ahead of the tiles. Compiled into
// ops/cpu/amx/kernels_amx.cc and tests only.
//
// Unpacking takes about 128 cycles for a step of 32 elements of depth, more than the tiles do.

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "ops/cpu/amx/product_tiles_amx.h"
#include "ops/cpu/amx/tile_amx.h"
#include "ops/cpu/amx/tile_unit_amx.h"
#include "ops/cpu/kernels.h"
#include "ops/format/packed_shape.h"

namespace afd::ops::cpu {
namespace {

// Weights of a panel, unpacked a unit of `unit` elements of depth at a time, two units ahead of the
// one in use. unpack(first, count, out) does it.
template <typename Unpack>
class UnpackedAhead {
  public:
    static constexpr size_t kUnitMax = 64;

    // unit: kStepDepth or kUnitMax.
    UnpackedAhead(size_t depth, size_t unit, const Unpack& unpack)
        : depth_(depth), unit_(unit), unpack_(unpack) {
        for (size_t i = 0; i < kAhead; ++i) unpack_next();
    }

    // Those of elements from k on, which begins a step, after the steps before.
    const std::byte* step(size_t k) {
        if (k % unit_ == 0) unpack_next();
        return reinterpret_cast<const std::byte*>(unit_of(k) + k % unit_ * kPanelColumns);
    }

  private:
    static constexpr size_t kAhead = 2;

    uint16_t* unit_of(size_t k) { return units_[k / unit_ % (kAhead + 1)]; }

    void unpack_next() {
        if (next_ >= depth_) return;
        unpack_(next_, std::min(unit_, depth_ - next_), unit_of(next_));
        next_ += unit_;
    }

    alignas(64) uint16_t units_[kAhead + 1][kUnitMax * kPanelColumns];
    size_t depth_;
    size_t unit_;
    const Unpack& unpack_;
    size_t next_ = 0;
};

// sums [num_rows][32] = rows · W of elements [first, last) of depth, where `first` begins a unit.
// The tiles are configured for whole steps; they are not any more where `last` is inside of one.
template <typename Tiles, typename Weights>
void multiply_ahead(
    const TileRowsOfX& rows, size_t first, size_t last, Weights& weights, float* sums) {
    const size_t whole = first + (last - first) / kStepDepth * kStepDepth;
    auto* const to = reinterpret_cast<std::byte*>(sums);
    Tiles::zero();
    for (size_t k = first; k < whole; k += kStepDepth) {
        Tiles::template add<AddBf16{}>(rows.from(k * sizeof(Bf16)), weights.step(k));
    }
    Tiles::store(to, kSumRow);
    if (whole == last) return;
    Tiles::template add_rest<AddBf16{}>(rows.from(whole * sizeof(Bf16)),
                                        (last - whole) * sizeof(Bf16),
                                        weights.step(whole),
                                        whole > first,
                                        to,
                                        kSumRow);
}

template <typename Arguments>
TileRowsOfX rows_of(const Arguments& a) {
    return {reinterpret_cast<const std::byte*>(a.x), a.x_stride * sizeof(Bf16), a.num_rows};
}

// kPlain() gives the table whose kernels unpack.
template <typename Unit, auto kPlain>
void amx_int4_tile(const Int4TileArguments& a) {
    const auto unpack_group = a.is_mxfp4 ? kPlain().unpack_mxfp4 : kPlain().unpack_int4;
    const auto unpack = [&](size_t first, size_t count, uint16_t* out) {
        unpack_group({.panel = a.panel + a.groups.offset(first),
                      .groups = a.groups,
                      .depth = count,
                      .out = out,
                      .fetch_ahead = a.fetch_ahead.bytes});
    };
    UnpackedAhead weights(a.depth, a.groups.size, unpack);
    with_tiles<Unit>(a.num_rows, [&]<typename Tiles>() {
        Tiles::configure(a.num_rows);
        multiply_ahead<Tiles>(rows_of(a), 0, a.depth, weights, a.out);
    });
    Unit::release();
}

template <typename Unit, auto kPlain>
void amx_fp8_tile(const Fp8TileArguments& a) {
    const Kernels& plain = kPlain();
    const auto unpack = [&](size_t first, size_t count, uint16_t* out) {
        plain.unpack_fp8({.values = a.panel + first * kPanelColumns,
                          .depth = count,
                          .out = out,
                          .fetch_ahead = a.fetch_ahead.bytes});
    };
    UnpackedAhead weights(a.depth, kStepDepth, unpack);
    const auto* scales = reinterpret_cast<const float*>(a.panel + fp8_values_bytes(a.depth));
    alignas(64) float products[kAmxRows * kPanelColumns];
    with_tiles<Unit>(a.num_rows, [&]<typename Tiles>() {
        Tiles::configure(a.num_rows);
        for (size_t k = 0; k < a.depth; k += kFp8BlockEdge) {
            const size_t end = std::min(k + kFp8BlockEdge, a.depth);
            multiply_ahead<Tiles>(rows_of(a), k, end, weights, products);
            plain.add_block({.products = products,
                             .scales = scales + k / kFp8BlockEdge * 2,
                             .num_rows = a.num_rows,
                             .goes_on = k > 0,
                             .sums = a.out});
        }
    });
    Unit::release();
}

}  // namespace
}  // namespace afd::ops::cpu
