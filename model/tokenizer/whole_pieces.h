// SPDX-License-Identifier: Apache-2.0
#pragma once

// WholePieces: short pieces that later steps of a pre-tokenizer are known to leave whole, as they
// do with most words. A step sees nothing of the text around a piece, so that holds everywhere.
// Each has one place, and the last one that came there has it.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "model/tokenizer/text_hash.h"

namespace afd::model {

class WholePieces {
  public:
    static constexpr size_t kPieceBytesMax = 30;

    // Whether the steps from number `step` on leave the piece whole, as far as is known.
    // REQUIRES: piece.size() <= kPieceBytesMax.
    bool has(size_t step, std::string_view piece) const {
        if (entries_.empty()) return false;
        const Entry& entry = entries_[place_of(step, piece)];
        return entry.num_bytes == piece.size() && entry.step == step &&
               std::memcmp(entry.bytes.data(), piece.data(), piece.size()) == 0;
    }

    // They do. REQUIRES: piece.size() <= kPieceBytesMax, and not empty.
    void keep(size_t step, std::string_view piece) {
        if (step > UINT8_MAX) return;
        if (entries_.empty()) entries_.resize(kPlaces);
        Entry& entry = entries_[place_of(step, piece)];
        entry.step = static_cast<uint8_t>(step);
        entry.num_bytes = static_cast<uint8_t>(piece.size());
        std::ranges::copy(piece, entry.bytes.begin());
    }

  private:
    static constexpr unsigned kPlaceBits = 14;  // 512 KiB.
    static constexpr size_t kPlaces = size_t{1} << kPlaceBits;

    struct Entry {
        std::array<char, kPieceBytesMax> bytes = {};
        uint8_t num_bytes = 0;  // 0: nobody has the place.
        uint8_t step = 0;
    };

    static size_t place_of(size_t step, std::string_view piece) {
        return hash_of_short(piece, step) >> (64 - kPlaceBits);
    }

    std::vector<Entry> entries_;  // Empty until something is kept.
};

}  // namespace afd::model
