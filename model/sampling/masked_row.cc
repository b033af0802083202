// SPDX-License-Identifier: Apache-2.0
#include "model/sampling/masked_row.h"

#include <array>
#include <bit>

#include "proto/check.h"

namespace afd::model {
namespace {

// The bits of each byte, lowest first, and behind them zeros.
struct BitPlaces {
    static constexpr size_t kBits = 8;
    std::array<std::array<uint8_t, kBits>, 256> at{};
    std::array<uint8_t, 256> count{};
};

constexpr BitPlaces make_bit_places() {
    BitPlaces places;
    for (unsigned byte = 0; byte < 256; ++byte) {
        for (uint8_t bit = 0; bit < BitPlaces::kBits; ++bit) {
            if ((byte >> bit & 1u) != 0) places.at[byte][places.count[byte]++] = bit;
        }
    }
    return places;
}

constexpr BitPlaces kBitPlaces = make_bit_places();

}  // namespace

MaskedRow::MaskedRow(size_t vocab_size)
    : vocab_size_(vocab_size), gathered_(vocab_size + BitPlaces::kBits) {}

std::span<const float> MaskedRow::gather(std::span<const float> row,
                                         std::span<const uint64_t> allowed) {
    AFD_ASSERT(allowed.size() == (vocab_size_ + 63) / 64,
               "a mask of %zu words for %zu tokens",
               allowed.size(),
               vocab_size_);
    // Bytes by a table: a loop over bits, most of which are set within a string, took three times
    // as long. A byte's eight stores may write behind what it has, where the next one's go.
    constexpr size_t kBits = BitPlaces::kBits;
    float* to = gathered_.data();
    for (size_t word = 0; word < allowed.size(); ++word) {
        const float* from = row.data() + 64 * word;
        for (uint64_t rest = allowed[word]; rest != 0; rest >>= kBits, from += kBits) {
            const auto byte = static_cast<uint8_t>(rest);
            if (byte == 0) continue;
            const auto& places = kBitPlaces.at[byte];
            for (size_t i = 0; i < kBits; ++i) to[i] = from[places[i]];
            to += kBitPlaces.count[byte];
        }
    }
    return {gathered_.data(), to};
}

uint32_t MaskedRow::token_at(std::span<const uint64_t> allowed, size_t index) {
    size_t word = 0;
    for (;; ++word) {
        const auto count = static_cast<size_t>(std::popcount(allowed[word]));
        if (index < count) break;
        index -= count;
    }
    uint64_t rest = allowed[word];
    for (; index > 0; --index) rest &= rest - 1;
    return static_cast<uint32_t>(64 * word + static_cast<size_t>(std::countr_zero(rest)));
}

}  // namespace afd::model
