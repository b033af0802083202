// SPDX-License-Identifier: Apache-2.0
#include "schedule/layout/row_checksum.h"

#include <cstring>

// The whole hash in this file: rows are short, and a call into the library costs as much as they
// do.
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace afd::schedule {

void seal_row(std::span<const std::byte> row, std::byte* place, bool is_input_intact) {
    const uint64_t hash = XXH3_64bits(row.data(), row.size());
    // A row whose hash is the complement of its own does not exist.
    const uint64_t seal = is_input_intact ? hash : ~hash;
    std::memcpy(place, &seal, sizeof(seal));
}

RowState look_at_row(std::span<const std::byte> row, const std::byte* place) {
    uint64_t seal = 0;
    std::memcpy(&seal, place, sizeof(seal));
    const uint64_t hash = XXH3_64bits(row.data(), row.size());
    if (seal == hash) return RowState::kIntact;
    return seal == ~hash ? RowState::kInputCorrupted : RowState::kCorrupted;
}

}  // namespace afd::schedule
