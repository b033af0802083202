// SPDX-License-Identifier: Apache-2.0
#include "model/tokenizer/unicode_form.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "model/tokenizer/utf8.h"

namespace afd::model {
namespace {

constexpr uint32_t kAsciiEnd = 0x80;
constexpr uint16_t kNoSequence = UINT16_MAX;

struct Character {
    uint32_t code_point;
    size_t size;
};

Character character_at(std::string_view text, size_t at) {
    const auto byte = static_cast<unsigned char>(text[at]);
    if (byte < kAsciiEnd) return {byte, 1};
    utf8proc_int32_t code_point = 0;
    const utf8proc_ssize_t size =
        utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + at,
                         static_cast<utf8proc_ssize_t>(text.size() - at),
                         &code_point);
    return {static_cast<uint32_t>(code_point), static_cast<size_t>(size)};
}

utf8proc_option_t options_of(UnicodeForm form) {
    const auto compatible = form.is_compatible ? UTF8PROC_COMPAT : utf8proc_option_t{};
    const auto shape = form.is_composed ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
    return static_cast<utf8proc_option_t>(UTF8PROC_STABLE | shape | compatible);
}

int combining_class(int32_t code_point) {
    return utf8proc_get_property(code_point)->combining_class;
}

// Whether the character is itself in every form, and nothing before it combines with it or moves
// behind it: the text may be cut there and the parts be normalized apart.
bool is_inert(uint32_t code_point) {
    if (code_point < kAsciiEnd) return true;
    // Hangul is composed by rule, which the properties do not show.
    const bool is_jamo = code_point >= 0x1100 && code_point < 0x1200;
    const bool is_syllable = code_point >= 0xAC00 && code_point < 0xD7B0;
    if (is_jamo || is_syllable) return false;
    const utf8proc_property_t* property =
        utf8proc_get_property(static_cast<utf8proc_int32_t>(code_point));
    return property->combining_class == 0 && property->decomp_seqindex == kNoSequence &&
           property->comb_index == kNoSequence;
}

// The library's own ordering swaps neighbours, which a long run of marks makes quadratic.
void order_marks(std::vector<int32_t>& characters) {
    for (size_t begin = 0; begin < characters.size(); ++begin) {
        if (combining_class(characters[begin]) == 0) continue;
        size_t end = begin;
        while (end < characters.size() && combining_class(characters[end]) != 0) ++end;
        std::stable_sort(
            characters.begin() + static_cast<std::ptrdiff_t>(begin),
            characters.begin() + static_cast<std::ptrdiff_t>(end),
            [](int32_t a, int32_t b) { return combining_class(a) < combining_class(b); });
        begin = end;
    }
}

void append_in_form(std::string_view text, UnicodeForm form, std::string& out) {
    const utf8proc_option_t options = options_of(form);
    std::vector<int32_t> characters;
    for (size_t at = 0; at < text.size();) {
        const Character character = character_at(text, at);
        at += character.size;
        // The longest decomposition, of U+FDFA, has 18.
        std::array<utf8proc_int32_t, 32> parts{};
        int boundary = 0;
        const utf8proc_ssize_t count =
            utf8proc_decompose_char(static_cast<utf8proc_int32_t>(character.code_point),
                                    parts.data(),
                                    static_cast<utf8proc_ssize_t>(parts.size()),
                                    options,
                                    &boundary);
        characters.insert(characters.end(), parts.begin(), parts.begin() + count);
    }
    order_marks(characters);
    const utf8proc_ssize_t count = utf8proc_normalize_utf32(
        characters.data(), static_cast<utf8proc_ssize_t>(characters.size()), options);
    for (utf8proc_ssize_t i = 0; i < count; ++i) {
        append_utf8(static_cast<uint32_t>(characters[static_cast<size_t>(i)]), out);
    }
}

}  // namespace

std::string in_form(std::string_view text, UnicodeForm form) {
    std::string out;
    out.reserve(text.size());
    size_t done = 0;       // Everything before is in `out`; a safe boundary.
    size_t last = 0;       // The last safe boundary seen.
    bool is_clean = true;  // What stands between them is in the form.
    for (size_t at = 0; at < text.size();) {
        const Character character = character_at(text, at);
        if (is_inert(character.code_point)) {
            if (!is_clean) {
                out += text.substr(done, last - done);
                append_in_form(text.substr(last, at - last), form, out);
                done = at;
                is_clean = true;
            }
            last = at;
        } else {
            is_clean = false;
        }
        at += character.size;
    }
    if (is_clean) last = text.size();
    out += text.substr(done, last - done);
    if (!is_clean) append_in_form(text.substr(last), form, out);
    return out;
}

std::string in_lower_case(std::string_view text) {
    // The one character with two in its lower case.
    constexpr uint32_t kCapitalDottedI = 0x130;
    std::string out;
    out.reserve(text.size());
    for (size_t at = 0; at < text.size();) {
        const Character character = character_at(text, at);
        at += character.size;
        if (character.code_point == kCapitalDottedI) {
            out += "i\u0307";
        } else {
            append_utf8(static_cast<uint32_t>(
                            utf8proc_tolower(static_cast<utf8proc_int32_t>(character.code_point))),
                        out);
        }
    }
    return out;
}

}  // namespace afd::model
