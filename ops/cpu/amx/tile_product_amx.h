// SPDX-License-Identifier: Apache-2.0
#pragma once

// Products of some rows and some panels with tiles, of any element: a panel has a line of two
// tiles' columns for every 4 bytes of depth (ops/format/packed_shape.h), so that a tile of B is
// every second line. Compiled into ops/cpu/amx/kernels_amx.cc and tests only.
//
// Tiles of 16 rows by 16 columns: up to 16 rows meet the four tiles of columns of two panels, up to
// 32 rows the two of one; either way four sums are under way, which a product's latency of about 52
// cycles at 16 cycles each needs.

#include <algorithm>
#include <cstddef>

#include "ops/cpu/amx/even_steps.h"
#include "ops/cpu/amx/padded_rows_amx.h"
#include "ops/cpu/amx/tile_unit_amx.h"
#include "ops/cpu/kernels.h"

namespace afd::ops::cpu {
namespace {

// Rows of one call.
constexpr size_t kAmxRows = 2 * kTileRows;

// Bytes of a panel for 4 bytes of depth, and for one product.
constexpr size_t kGroupBytes = 4 * kPanelColumns;
constexpr size_t kStepBytes = kTileGroups * kGroupBytes;

struct TileProduct {
    const std::byte* x;  // num_rows rows of row_bytes, stride apart
    size_t stride;
    size_t num_rows;  // At most kAmxRows
    size_t row_bytes;
    const std::byte* panel;
    size_t panel_bytes;
    size_t num_panels;  // 1 where rows are more than kTileRows
    std::byte* out;     // [num_rows][num_panels · 32] sums of 4 bytes
    bool goes_on;
    bool is_cold;  // The panel comes from memory.
    FetchNext fetch_next;
    const std::byte* next_x;
};

// What is fetched during one step, from memory to the second-level cache, whatever the number of
// rows: 8 KiB ahead, 1 to 16 rows ran at 0.83 to 0.94 of a plain read there.
class StepFetch {
  public:
    explicit StepFetch(const TileProduct& p)
        : next_(p.fetch_next), next_x_(p.next_x), ahead_(p.is_cold ? block_sizes().fetch_far : 0) {}

    // The step at `panel`, of kPanels panels.
    template <size_t kPanels>
    void step(const std::byte* panel, size_t panel_bytes) {
        if (next_.from != nullptr) {
            for (size_t i = 0; i < kTileGroups; ++i) {
                fetch(next_.from);
                next_.from += next_.step_bytes;
                if (next_x_ == nullptr) continue;
                fetch(next_x_);
                next_x_ += kCacheLine;
            }
            return;
        }
        if (ahead_ == 0) return;
        for (size_t p = 0; p < kPanels; ++p) {
            for (size_t i = 0; i < kStepBytes; i += kCacheLine) {
                fetch(panel + p * panel_bytes + ahead_ + i);
            }
        }
    }

  private:
    static void fetch(const std::byte* at) { __builtin_prefetch(at, 0, 2); }

    FetchNext next_;
    const std::byte* next_x_;
    size_t ahead_;
};

// kBottom: a second tile of rows. kSecond: a second panel. Only one of them.
template <typename Unit, auto kAdd, bool kBottom, bool kSecond>
class TileBlock {
    static_assert(!(kBottom && kSecond));

  public:
    TileBlock(const TileProduct& p, const std::byte* panel, std::byte* out)
        : p_(p),
          panel_(panel),
          out_(out),
          out_stride_(p.num_panels * kPanelColumns * 4),
          top_(kBottom ? kTileRows : p.num_rows),
          bottom_(p.num_rows - top_) {}

    void run() {
        const size_t num_steps = p_.row_bytes / kTileRowBytes;
        const size_t rest = p_.row_bytes % kTileRowBytes;
        bool goes_on = p_.goes_on;
        if (num_steps > 0 || rest == 0) {
            begin(kTileGroups, goes_on);
            StepFetch fetch(p_);
            for (size_t step = 0; step < num_steps; ++step) {
                const std::byte* panel = panel_ + step * kStepBytes;
                fetch.template step<kSecond ? 2 : 1>(panel, p_.panel_bytes);
                add(p_.x + step * kTileRowBytes, p_.stride, panel);
            }
            end();
            goes_on = true;
        }
        if (rest == 0) return;
        const PaddedRows<kAmxRows> padded(
            p_.x + num_steps * kTileRowBytes, p_.stride, p_.num_rows, rest);
        begin((rest + 3) / 4, goes_on);
        add(padded.row(0), kTileRowBytes, panel_ + num_steps * kStepBytes);
        end();
    }

  private:
    // Sums for products of `groups` groups of depth.
    void begin(size_t groups, bool goes_on) const {
        TileConfiguration configuration;
        for (const size_t c : {0, 1}) configuration.set(c, top_, kTileRowBytes);
        for (const size_t c : {2, 3}) {
            configuration.set(c, kBottom ? bottom_ : kSecond ? top_ : 0, kTileRowBytes);
        }
        configuration.set(4, top_, groups * 4);
        configuration.set(5, bottom_, groups * 4);
        for (const size_t b : {6, 7}) configuration.set(b, groups, kTileRowBytes);
        Unit::configure(configuration);
        begin_sum<0>(goes_on);
        begin_sum<1>(goes_on);
        if constexpr (kBottom || kSecond) {
            begin_sum<2>(goes_on);
            begin_sum<3>(goes_on);
        }
    }

    void end() const {
        Unit::template store<0>(sums(0), out_stride_);
        Unit::template store<1>(sums(1), out_stride_);
        if constexpr (kBottom || kSecond) {
            Unit::template store<2>(sums(2), out_stride_);
            Unit::template store<3>(sums(3), out_stride_);
        }
    }

    template <int kTile>
    void begin_sum(bool goes_on) const {
        if (goes_on) {
            Unit::template load<kTile>(sums(kTile), out_stride_);
        } else {
            Unit::template zero<kTile>();
        }
    }

    // Where the sums of a tile of C stand.
    std::byte* sums(size_t tile) const {
        const size_t half = tile % 2 * kTileRowBytes;
        if (tile < 2) return out_ + half;
        return out_ + half + (kBottom ? kTileRows * out_stride_ : kPanelColumns * 4);
    }

    void add(const std::byte* x, size_t stride, const std::byte* panel) const {
        Unit::template load<4>(x, stride);
        load_weights(panel);
        kAdd.template operator()<Unit, 0, 4, 6>();
        kAdd.template operator()<Unit, 1, 4, 7>();
        if constexpr (kBottom) {
            Unit::template load<5>(x + kTileRows * stride, stride);
            kAdd.template operator()<Unit, 2, 5, 6>();
            kAdd.template operator()<Unit, 3, 5, 7>();
        }
        if constexpr (kSecond) {
            load_weights(panel + p_.panel_bytes);
            kAdd.template operator()<Unit, 2, 4, 6>();
            kAdd.template operator()<Unit, 3, 4, 7>();
        }
    }

    static void load_weights(const std::byte* panel) {
        Unit::template load<6>(panel, kGroupBytes);
        Unit::template load<7>(panel + kTileRowBytes, kGroupBytes);
    }

    const TileProduct& p_;
    const std::byte* panel_;
    std::byte* out_;
    size_t out_stride_;
    size_t top_;     // Rows of the first tile of x,
    size_t bottom_;  // and of the second one.
};

// kAdd.template operator()<Unit, C, A, B>() is the instruction.
template <typename Unit, auto kAdd>
void multiply_tiles(const TileProduct& p) {
    if (p.num_rows > kTileRows) {
        TileBlock<Unit, kAdd, true, false>(p, p.panel, p.out).run();
        Unit::release();
        return;
    }
    size_t panel = 0;
    const auto weights = [&] { return p.panel + panel * p.panel_bytes; };
    const auto sums = [&] { return p.out + panel * kPanelColumns * 4; };
    for (; panel + 2 <= p.num_panels; panel += 2) {
        TileBlock<Unit, kAdd, false, true>(p, weights(), sums()).run();
    }
    if (panel < p.num_panels) TileBlock<Unit, kAdd, false, false>(p, weights(), sums()).run();
    Unit::release();
}

}  // namespace
}  // namespace afd::ops::cpu
