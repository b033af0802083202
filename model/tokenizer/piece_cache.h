// SPDX-License-Identifier: Apache-2.0
#pragma once

// PieceCache: the ids of pieces that were encoded before. Ordinary words are short and repeat. Each
// piece has one place, of one line of memory, and the last one that came there has it: nothing is
// allocated, and an order of use, which would cost every piece, is not kept.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "model/tokenizer/text_hash.h"

namespace afd::model {

class PieceCache {
  public:
    // What is longer, or has more ids, is not kept.
    static constexpr size_t kPieceBytesMax = 30;
    static constexpr size_t kIdsMax = 8;

    // Appends the ids of `piece` if it is there. REQUIRES: piece.size() <= kPieceBytesMax.
    bool find(std::string_view piece, std::vector<uint32_t>& ids) const {
        if (entries_.empty()) return false;
        const Entry& entry = entries_[place_of(piece)];
        if (entry.num_bytes != piece.size() || entry.num_ids == 0) return false;
        if (std::memcmp(entry.bytes.data(), piece.data(), piece.size()) != 0) return false;
        ids.insert(ids.end(), entry.ids.begin(), entry.ids.begin() + entry.num_ids);
        return true;
    }

    // REQUIRES: piece.size() <= kPieceBytesMax, and not empty.
    void keep(std::string_view piece, std::span<const uint32_t> ids) {
        if (ids.size() > kIdsMax) return;
        if (entries_.empty()) entries_.resize(kPlaces);
        Entry& entry = entries_[place_of(piece)];
        entry.num_bytes = static_cast<uint8_t>(piece.size());
        entry.num_ids = static_cast<uint8_t>(ids.size());
        std::ranges::copy(piece, entry.bytes.begin());
        std::ranges::copy(ids, entry.ids.begin());
    }

  private:
    static constexpr unsigned kPlaceBits = 16;  // 4 MiB hold nearly all words of a language.
    static constexpr size_t kPlaces = size_t{1} << kPlaceBits;

    struct alignas(64) Entry {
        std::array<uint32_t, kIdsMax> ids = {};
        std::array<char, kPieceBytesMax> bytes = {};
        uint8_t num_bytes = 0;
        uint8_t num_ids = 0;  // 0: nobody has the place.
    };
    static_assert(sizeof(Entry) == 64);

    static size_t place_of(std::string_view piece) {
        return hash_of_short(piece, 0) >> (64 - kPlaceBits);
    }

    std::vector<Entry> entries_;  // Empty until something is kept.
};

}  // namespace afd::model
