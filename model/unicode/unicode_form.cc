// SPDX-License-Identifier: Apache-2.0
#include "model/unicode/unicode_form.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "model/unicode/utf8.h"

namespace afd::model {
namespace {

constexpr uint32_t kAsciiEnd = 0x80;
constexpr uint16_t kNoSequence = UINT16_MAX;

struct Range {
    uint32_t first;
    uint32_t last;

    bool holds(uint32_t code_point) const { return code_point >= first && code_point <= last; }
};

// The tables of the tokenizers library are of Unicode 9 to 11 where it normalizes, and models have
// been trained with that: these, which have got a decomposition, a combining class or a composition
// since, stay as and where they are. Found by asking it about every code point.
// clang-format off
constexpr std::array<Range, 47> kUnknown = {{
    {0x7FD, 0x7FD}, {0x898, 0x89F}, {0x8CA, 0x8D3}, {0x9FE, 0x9FE},
    {0xC3C, 0xC3C}, {0xD3B, 0xD3C}, {0xEBA, 0xEBA}, {0x1715, 0x1715},
    {0x1ABF, 0x1ACE}, {0x1DF6, 0x1DFA}, {0x32FF, 0x32FF}, {0xA7F2, 0xA7F4},
    {0xA82C, 0xA82C}, {0xAB69, 0xAB69}, {0x10781, 0x10785}, {0x10787, 0x107B0},
    {0x107B2, 0x107BA}, {0x10D24, 0x10D27}, {0x10EAB, 0x10EAC}, {0x10EFD, 0x10EFF},
    {0x10F46, 0x10F50}, {0x10F82, 0x10F85}, {0x11070, 0x11070}, {0x1133B, 0x1133B},
    {0x1145E, 0x1145E}, {0x11839, 0x1183A}, {0x11930, 0x11930}, {0x11938, 0x11938},
    {0x1193D, 0x1193E}, {0x11943, 0x11943}, {0x119E0, 0x119E0}, {0x11A34, 0x11A34},
    {0x11A47, 0x11A47}, {0x11A99, 0x11A99}, {0x11D42, 0x11D42}, {0x11D44, 0x11D45},
    {0x11D97, 0x11D97}, {0x11F41, 0x11F42}, {0x16FF0, 0x16FF1}, {0x1E030, 0x1E06D},
    {0x1E08F, 0x1E08F}, {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF},
    {0x1E4EC, 0x1E4EF}, {0x1F16C, 0x1F16C}, {0x1FBF0, 0x1FBF9}}};
// clang-format on

// Lower case is of Unicode 17 there: `by` is what to add.
struct LowerCase {
    Range range;
    int32_t by;
    uint32_t step = 1;  // Every so many code points of the range.
};
constexpr std::array<LowerCase, 8> kNewLowerCase = {{{{0x1C89, 0x1C89}, 1},
                                                     {{0xA7CB, 0xA7CB}, 0x264 - 0xA7CB},
                                                     {{0xA7CC, 0xA7CE}, 1, 2},
                                                     {{0xA7D2, 0xA7D4}, 1, 2},
                                                     {{0xA7DA, 0xA7DA}, 1},
                                                     {{0xA7DC, 0xA7DC}, 0x19B - 0xA7DC},
                                                     {{0x10D50, 0x10D65}, 0x20},
                                                     {{0x16EA0, 0x16EB8}, 0x1B}}};

uint32_t lower_case_of(uint32_t code_point) {
    for (const LowerCase& entry : kNewLowerCase) {
        if (!entry.range.holds(code_point)) continue;
        if ((code_point - entry.range.first) % entry.step != 0) continue;
        return static_cast<uint32_t>(static_cast<int32_t>(code_point) + entry.by);
    }
    return static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code_point)));
}

bool is_unknown(uint32_t code_point) {
    return std::ranges::any_of(kUnknown,
                               [&](const Range& range) { return range.holds(code_point); });
}

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

void append_composed(std::vector<int32_t>& characters, UnicodeForm form, std::string& out) {
    order_marks(characters);
    const utf8proc_ssize_t count = utf8proc_normalize_utf32(
        characters.data(), static_cast<utf8proc_ssize_t>(characters.size()), options_of(form));
    for (utf8proc_ssize_t i = 0; i < count; ++i) {
        append_utf8(static_cast<uint32_t>(characters[static_cast<size_t>(i)]), out);
    }
    characters.clear();
}

void append_in_form(std::string_view text, UnicodeForm form, std::string& out) {
    std::vector<int32_t> characters;
    for (size_t at = 0; at < text.size();) {
        const Character character = character_at(text, at);
        at += character.size;
        if (is_unknown(character.code_point)) {
            append_composed(characters, form, out);
            append_utf8(character.code_point, out);
            continue;
        }
        // The longest decomposition, of U+FDFA, has 18.
        std::array<utf8proc_int32_t, 32> parts{};
        int boundary = 0;
        const utf8proc_ssize_t count =
            utf8proc_decompose_char(static_cast<utf8proc_int32_t>(character.code_point),
                                    parts.data(),
                                    static_cast<utf8proc_ssize_t>(parts.size()),
                                    options_of(form),
                                    &boundary);
        characters.insert(characters.end(), parts.begin(), parts.begin() + count);
    }
    append_composed(characters, form, out);
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
            append_utf8(lower_case_of(character.code_point), out);
        }
    }
    return out;
}

}  // namespace afd::model
