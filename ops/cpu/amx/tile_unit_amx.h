// SPDX-License-Identifier: Apache-2.0
#pragma once

// The eight tile registers of AMX: what they are told about their sizes, and the instructions that
// the kernels use. Compiled into ops/cpu/amx/kernels_amx.cc and tests only: the kernels take the
// unit as a template parameter, so that tests run them on one in software
// (tests/ops/cpu/software_tiles.h).
//
// A product is of 16 rows and 16 columns: C[m][n] += Σ A[m][k] · B[k][n], where A is `rows` rows of
// at most 64 bytes, B as many rows of 64 bytes as A has groups of 4 bytes (a pair of bf16 values,
// four bytes), and C rows of 16 sums. Kernels use tiles 0 to 3 for C, 4 and 5 for A, 6 and 7 for B.

#include <cstddef>
#include <cstdint>
#include <optional>

namespace afd::ops::cpu {
namespace {

constexpr size_t kTileRows = 16;
constexpr size_t kTileRowBytes = 64;
constexpr size_t kTileGroups = 16;  // Of 4 bytes of depth, in one product.

// As ldtilecfg reads it. A tile that nobody uses has no rows.
struct alignas(64) TileConfiguration {
    uint8_t palette = 1;
    uint8_t start_row = 0;
    uint8_t reserved[14] = {};
    uint16_t row_bytes[16] = {};
    uint8_t rows[16] = {};

    void set(size_t tile, size_t num_rows, size_t bytes) {
        rows[tile] = static_cast<uint8_t>(num_rows);
        row_bytes[tile] = static_cast<uint16_t>(num_rows == 0 ? 0 : bytes);
    }
};
static_assert(sizeof(TileConfiguration) == 64);

// The unit of the processor. Written as assembler, since GCC 12 has these instructions as macros
// that want the number of a tile as a literal, and that do not say which memory they read. A
// configuration zeroes the tiles and costs tens of cycles: it is for a call, not for a tile.
// Released tiles are nothing to save when the thread sleeps.
struct AmxTileUnit {
    static void configure(const TileConfiguration& configuration) {
        asm("ldtilecfg %0" : : "m"(configuration));
    }
    static void release() {
        // Has no operands, so nothing else says that it must not be moved before the last store.
        asm("tilerelease" : : : "memory");
    }
    template <int kTile>
    static void zero() {
        asm("tilezero %%tmm%c0" : : "i"(kTile));
    }
    // Rows are `stride` bytes apart.
    template <int kTile>
    static void load(const void* from, size_t stride) {
        asm("tileloadd (%1,%2,1), %%tmm%c0" : : "i"(kTile), "r"(from), "r"(stride) : "memory");
    }
    template <int kTile>
    static void store(void* to, size_t stride) {
        asm("tilestored %%tmm%c0, (%1,%2,1)" : : "i"(kTile), "r"(to), "r"(stride) : "memory");
    }
    // Pairs of bf16 values.
    template <int kC, int kA, int kB>
    static void add_bf16() {
        asm("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kC), "i"(kA), "i"(kB));
    }
    // Bytes, with a sign in A and without one in B.
    template <int kC, int kA, int kB>
    static void add_bytes() {
        asm("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kC), "i"(kA), "i"(kB));
    }
};

// The sizes that the tiles have, told to the unit where they change. Sizes are what a
// configuration() follows from.
template <typename Unit, typename Sizes>
class SizedTiles {
  public:
    void take(const Sizes& sizes) {
        if (sizes_ == sizes) return;
        sizes_ = sizes;
        Unit::configure(sizes.configuration());
    }

  private:
    std::optional<Sizes> sizes_;
};

}  // namespace
}  // namespace afd::ops::cpu
