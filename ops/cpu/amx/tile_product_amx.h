// SPDX-License-Identifier: Apache-2.0
#pragma once

// Products of up to 32 rows and some panels that may come from memory, with tiles, of any element.
// Compiled into ops/cpu/amx/kernels_amx.cc and tests only.
//
// One panel after another: two in turns are two streams of memory, and what is fetched ahead in one
// of them is not where the next one begins. Lines are asked for between the loads of tiles.

#include <cstddef>

#include "ops/cpu/amx/even_steps.h"
#include "ops/cpu/amx/product_tiles_amx.h"
#include "ops/cpu/amx/tile_unit_amx.h"

namespace afd::ops::cpu {
namespace {

struct TileProduct {
    TileRowsOfX rows;
    size_t row_bytes;
    const std::byte* panel;
    size_t panel_bytes;
    size_t num_panels;
    std::byte* out;  // [num_rows][num_panels · 32] sums of 4 bytes
    bool goes_on;
    // How far ahead of its use a panel is fetched to the second-level cache, in bytes; 0: it is in
    // a cache.
    size_t fetch_ahead;
};

// A quarter of a step's lines at every call.
class AheadFetch {
  public:
    AheadFetch(const std::byte* step, size_t ahead) : at_(step + ahead), is_wanted_(ahead > 0) {}

    [[gnu::always_inline]] void operator()() {
        if (!is_wanted_) return;
        for (size_t i = 0; i < kStepBytes / 4; i += kCacheLine) {
            __builtin_prefetch(at_ + i, 0, 2);
        }
        at_ += kStepBytes / 4;
    }

  private:
    const std::byte* at_;
    bool is_wanted_;
};

template <typename Tiles, auto kAdd>
void multiply_panels(const TileProduct& p) {
    const size_t whole = p.row_bytes / kTileRowBytes * kTileRowBytes;
    const size_t stride = p.num_panels * kPanelColumns * 4;
    const auto sums = [&](size_t panel) { return p.out + panel * kPanelColumns * 4; };
    if (whole > 0 || p.row_bytes == 0) {
        Tiles::configure(p.rows.num_rows);
        for (size_t panel = 0; panel < p.num_panels; ++panel) {
            Tiles::begin(p.goes_on, sums(panel), stride);
            const std::byte* step = p.panel + panel * p.panel_bytes;
            AheadFetch fetch(step, p.fetch_ahead);
            for (size_t at = 0; at < whole; at += kTileRowBytes, step += kStepBytes) {
                Tiles::template add<kAdd>(p.rows.from(at), step, [&] { fetch(); });
            }
            Tiles::store(sums(panel), stride);
        }
    }
    if (whole == p.row_bytes) return;
    for (size_t panel = 0; panel < p.num_panels; ++panel) {
        Tiles::template add_rest<kAdd>(
            p.rows.from(whole),
            p.row_bytes - whole,
            p.panel + panel * p.panel_bytes + whole / kTileRowBytes * kStepBytes,
            p.goes_on || whole > 0,
            sums(panel),
            stride);
    }
}

// kAdd.template operator()<Unit, C, A, B>() is the instruction.
template <typename Unit, auto kAdd>
void multiply_tiles(const TileProduct& p) {
    with_tiles<Unit>(p.rows.num_rows, [&]<typename Tiles>() { multiply_panels<Tiles, kAdd>(p); });
    Unit::release();
}

}  // namespace
}  // namespace afd::ops::cpu
