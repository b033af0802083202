// SPDX-License-Identifier: Apache-2.0
#pragma once

// The order in which rows meet the panels of one packed matrix piece by piece of depth
// (cpu::PieceArguments): some panels and some rows at a time, so that the rows of a piece, the
// pieces of the panels, the next ones on their way from memory, and the sums stay in the
// second-level cache together. Internal to ops/; what is multiplied is in piece_passes.h.

#include <algorithm>
#include <cstddef>
#include <optional>

#include "ops/cpu/kernels.h"
#include "ops/linear/panel_finish.h"
#include "ops/linear/pieces.h"
#include "ops/linear/tile_products.h"
#include "ops/tensor/tensor_view.h"

namespace afd::ops {

// What goes together: a chunk of rows, nearly equal ones of at most kChunkRows, and a group of
// kGroupPanels panels.
constexpr size_t kChunkRows = 512;
constexpr size_t kGroupSums = kGroupPanels * kChunkRows * kPanelColumns;

// The pieces of panels [first_panel, last_panel) of a matrix of `depth`, `piece` elements each.
struct PieceWalk {
    size_t depth;
    size_t piece;
    size_t first_panel;
    size_t last_panel;
    RowBlocks chunks;

    // For each group and chunk calls begin(place), then multiply(place, arguments) for each of its
    // pieces, without x and sums, and end(place).
    template <typename Pieces, typename Begin, typename Multiply, typename End>
    void run(Pieces pieces, const Begin& begin, const Multiply& multiply, const End& end) const {
        std::optional<PiecePlace> place = at(first_panel, 0, 0);
        while (place) {
            const std::optional<PiecePlace> next = after(*place);
            if (place->k == 0) begin(*place);
            cpu::PieceArguments a;
            a.num_rows = chunks.rows(place->chunk);
            a.num_panels = place->num_panels;
            a.goes_on = place->k > 0;
            pieces.take(*place, next, a);
            // What is unpacked meanwhile has come from memory by now.
            set_fetch(pieces, next && Pieces::kAreUnpacked ? after(*next) : next, a);
            multiply(*place, a);
            if (place->k + place->depth == depth) end(*place);
            place = next;
        }
    }

  private:
    // The place that begins there, unless the panels end before it.
    std::optional<PiecePlace> at(size_t panel, size_t chunk, size_t k) const {
        if (panel >= last_panel) return std::nullopt;
        return PiecePlace{panel,
                          std::min(kGroupPanels, last_panel - panel),
                          chunk,
                          k,
                          std::min(piece, depth - k)};
    }
    std::optional<PiecePlace> after(const PiecePlace& place) const {
        const size_t k = place.k + place.depth;
        if (k < depth) return at(place.panel, place.chunk, k);
        if (place.chunk + 1 < chunks.count) return at(place.panel, place.chunk + 1, 0);
        return at(place.panel + kGroupPanels, 0, 0);
    }

    template <typename Pieces>
    void set_fetch(const Pieces& pieces,
                   const std::optional<PiecePlace>& place,
                   cpu::PieceArguments& a) const {
        if (!place) return;
        const PieceSource next = pieces.source(place->panel, place->k, place->depth);
        const PieceSource beside = pieces.source(place->panel + 1, place->k, 0);
        a.fetch = next.from;
        a.fetch_bytes = next.bytes;
        a.fetch_stride = static_cast<size_t>(beside.from - next.from);
    }
};

// The sums of a group and a chunk go to their finisher, a tile at a time: sums_of(p, row, count) of
// panel + p, from a row of the chunk on.
template <typename SumsOf, typename Finish>
void finish_pieces(const RowBlocks& chunks,
                   const PiecePlace& place,
                   const SumsOf& sums_of,
                   const Finish& finish) {
    const RowBlocks blocks(chunks.rows(place.chunk), cpu::kTileRowsMax);
    const size_t first_row = chunks.first(place.chunk);
    const size_t num_tiles = place.num_panels * blocks.count;
    const auto targets_of = [&](size_t tile) {
        const size_t block = tile % blocks.count;
        const TileCover cover{first_row + blocks.first(block),
                              blocks.rows(block),
                              place.panel + tile / blocks.count,
                              1,
                              true};
        return TileTargets(finish, cover);
    };
    // Where the next tile goes to is fetched while one is finished.
    auto targets = targets_of(0);
    for (size_t tile = 0; tile < num_tiles; ++tile) {
        const auto next = targets_of(std::min(tile + 1, num_tiles - 1));
        const size_t block = tile % blocks.count;
        targets(sums_of(tile / blocks.count, blocks.first(block), blocks.rows(block)));
        targets = next;
    }
}

// What finish_pieces() wants, of sums that are what they should be.
struct PlainSums {
    const float* sums;  // [num_panels][num_rows][32]
    size_t num_rows;

    const float* operator()(size_t p, size_t row, size_t /*count*/) const {
        return sums + (p * num_rows + row) * kPanelColumns;
    }
};

// Elements [k, k + depth) of x from row `first` on.
template <typename T>
void set_rows(const Rows<T>& x, size_t first, size_t k, size_t depth, cpu::PieceArguments& a) {
    a.x = reinterpret_cast<const std::byte*>(x.row(first) + k);
    a.x_stride = x.stride * sizeof(T);
    a.row_bytes = depth * sizeof(T);
}

}  // namespace afd::ops
