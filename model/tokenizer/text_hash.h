// SPDX-License-Identifier: Apache-2.0
#pragma once

// TextHash: for maps with texts as keys that are asked with a view: no copy is made for a look-up.
// hash_of_short(): of a few bytes, for tables that are asked for every word; its high bits count.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string_view>

namespace afd::model {

struct TextHash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
};

inline uint64_t hash_of_short(std::string_view text, uint64_t seed) {
    // The constant is 2^64 divided by the golden ratio.
    uint64_t hash = seed + text.size();
    const auto mix = [&hash](uint64_t word) {
        hash = (hash ^ word) * 0x9E3779B97F4A7C15U;
        hash ^= hash >> 32;
    };
    for (; text.size() >= sizeof(uint64_t); text.remove_prefix(sizeof(uint64_t))) {
        uint64_t word = 0;
        std::memcpy(&word, text.data(), sizeof(word));
        mix(word);
    }
    uint64_t rest = 0;
    for (const char c : text) rest = rest << 8 | static_cast<uint8_t>(c);
    mix(rest);
    return hash;
}

}  // namespace afd::model
