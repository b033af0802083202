// SPDX-License-Identifier: Apache-2.0
#pragma once

// The ends of rows whose depth is no multiple of what a tile takes, packed for one tile load: a
// load of the rows themselves would read beyond them. Compiled into ops/cpu/amx/kernels_amx.cc and
// tests only.

#include <cstddef>
#include <cstring>

#include "ops/cpu/amx/tile_unit_amx.h"

namespace afd::ops::cpu {
namespace {

template <size_t kRowsMax>
class PaddedRows {
  public:
    // The last `count` bytes, at most kTileRowBytes, of rows that begin there; then zeros.
    PaddedRows(const std::byte* ends, size_t stride, size_t num_rows, size_t count) {
        for (size_t row = 0; row < num_rows; ++row) {
            std::memset(bytes_[row], 0, kTileRowBytes);
            std::memcpy(bytes_[row], ends + row * stride, count);
        }
    }

    const std::byte* row(size_t index) const { return bytes_[index]; }

  private:
    alignas(64) std::byte bytes_[kRowsMax][kTileRowBytes];
};

}  // namespace
}  // namespace afd::ops::cpu
