// SPDX-License-Identifier: Apache-2.0
#pragma once

// Products of up to 32 rows and some panels that may come from memory, with tiles, of any element.
// Compiled into ops/cpu/amx/kernels_amx.cc and tests only.
//
// One panel after another; lines are asked for between the loads of tiles.

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
    bool is_from_memory;
};

// Fetches a panel to the second-level cache, a quarter of a step's lines at every call, from
// several pages in turn: to the processor they are as many streams, and it fetches along each of
// them itself. Two threads on two cores of a Granite Rapids, parts of a plain read, line by line 8
// KiB ahead first: 8 rows 0.91 and 0.99, 32 rows 0.83 and 0.93; two pages 0.96, eight as four.
class PagesAhead {
  public:
    explicit PagesAhead(const std::byte* panel) : at_(panel + kPages * kPageBytes) {}

    [[gnu::always_inline]] void operator()() {
        constexpr size_t kLinesOfPage = kStepBytes / 4 / kCacheLine / kPages;
        for (size_t line = 0; line < kLinesOfPage; ++line, at_ += kCacheLine) {
            for (size_t page = 0; page < kPages; ++page) {
                __builtin_prefetch(at_ + page * kPageBytes, 0, 2);
            }
        }
        page_bytes_ += kLinesOfPage * kCacheLine;
        if (page_bytes_ < kPageBytes) return;
        page_bytes_ = 0;
        at_ += (kPages - 1) * kPageBytes;
    }

  private:
    static constexpr size_t kPageBytes = 4096;
    static constexpr size_t kPages = 4;

    const std::byte* at_;
    size_t page_bytes_ = 0;  // Of each of the pages.
};

// Fetches of the next panel behind the last step: memory goes on while sums are finished. The
// medium checkpoint in int8 decodes 16 and 32 streams 1.06 to 1.10 times as fast with so many; with
// 16 of them as fast as with none.
constexpr size_t kFetchesBehind = 6;

// `whole` bytes of the rows and of all panels. between() is called four times in each step.
template <typename Tiles, auto kAdd, typename Between>
void multiply_steps(const TileProduct& p, size_t whole, const Between& between) {
    const size_t stride = p.num_panels * kPanelColumns * 4;
    Tiles::configure(p.rows.num_rows);
    for (size_t panel = 0; panel < p.num_panels; ++panel) {
        std::byte* sums = p.out + panel * kPanelColumns * 4;
        Tiles::begin(p.goes_on, sums, stride);
        const std::byte* step = p.panel + panel * p.panel_bytes;
        for (size_t at = 0; at < whole; at += kTileRowBytes, step += kStepBytes) {
            Tiles::template add<kAdd>(p.rows.from(at), step, between);
        }
        Tiles::store(sums, stride);
    }
}

template <typename Tiles, auto kAdd>
void multiply_panels(const TileProduct& p) {
    const size_t whole = p.row_bytes / kTileRowBytes * kTileRowBytes;
    if (p.is_from_memory && whole > 0) {
        PagesAhead fetch(p.panel);
        multiply_steps<Tiles, kAdd>(p, whole, [&] { fetch(); });
        for (size_t i = 0; i < kFetchesBehind; ++i) fetch();
    } else if (whole > 0 || p.row_bytes == 0) {
        multiply_steps<Tiles, kAdd>(p, whole, [] {});
    }
    if (whole == p.row_bytes) return;
    for (size_t panel = 0; panel < p.num_panels; ++panel) {
        Tiles::template add_rest<kAdd>(
            p.rows.from(whole),
            p.row_bytes - whole,
            p.panel + panel * p.panel_bytes + whole / kTileRowBytes * kStepBytes,
            p.goes_on || whole > 0,
            p.out + panel * kPanelColumns * 4,
            p.num_panels * kPanelColumns * 4);
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
