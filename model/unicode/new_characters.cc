// SPDX-License-Identifier: Apache-2.0
#include "model/unicode/new_characters.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "model/unicode/unicode_additions.h"

namespace afd::model {
namespace {

// The additions, and the one old character that PCRE2 takes for a blank.
struct NewCharacters {
    static constexpr uint32_t kVowelSeparator = 0x180E;

    std::array<bool, (0x110000 >> 6)> blocks{};  // Of 64 code points: whether one of them is new.

    NewCharacters() {
        blocks[kVowelSeparator >> 6] = true;
        for (const UnicodeAddition& addition : unicode_additions()) {
            for (uint32_t block = addition.first >> 6; block <= addition.last >> 6; ++block) {
                blocks[block] = true;
            }
        }
    }

    bool hold(uint32_t code_point) const {
        if (code_point == kVowelSeparator) return true;
        return std::ranges::any_of(unicode_additions(), [&](const UnicodeAddition& addition) {
            return code_point >= addition.first && code_point <= addition.last;
        });
    }
};

}  // namespace

bool has_new_characters(std::string_view text) {
    static const NewCharacters kNewCharacters;
    for (size_t i = 0; i < text.size(); ++i) {
        // Most of most texts is ASCII.
        uint64_t eight = 0;
        while (i + sizeof(eight) < text.size()) {
            std::memcpy(&eight, text.data() + i, sizeof(eight));
            if ((eight & 0x8080808080808080u) != 0) break;
            i += sizeof(eight);
        }
        const auto lead = static_cast<unsigned char>(text[i]);
        // Shorter characters are all old.
        if (lead < 0xE0) continue;
        const auto bits = [&](size_t at) {
            return static_cast<unsigned char>(text[i + at]) & 0x3Fu;
        };
        const uint32_t high = lead < 0xF0 ? (lead & 0xFu) << 6 | bits(1)
                                          : (lead & 0x7u) << 12 | bits(1) << 6 | bits(2);
        if (kNewCharacters.blocks[high] &&
            kNewCharacters.hold(high << 6 | bits(lead < 0xF0 ? 2 : 3))) {
            return true;
        }
    }
    return false;
}

}  // namespace afd::model
