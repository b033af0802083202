// SPDX-License-Identifier: Apache-2.0
#include "model/unicode/utf8.h"

#include <algorithm>

namespace afd::model {
namespace {

bool continues_character(char byte) {
    return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
}

struct Lead {
    size_t size;          // Of the character; 0: cannot begin one.
    unsigned second_low;  // Range of the second byte; later ones are 80..BF.
    unsigned second_high;
};

Lead classify(unsigned byte) {
    if (byte < 0x80) return {1, 0, 0};
    // C0 and C1 could only begin a longer form of ASCII; the ranges of second bytes below exclude
    // the other overlong forms, surrogates, and what lies beyond U+10FFFF.
    if (byte < 0xC2) return {0, 0, 0};
    if (byte < 0xE0) return {2, 0x80, 0xBF};
    if (byte == 0xE0) return {3, 0xA0, 0xBF};
    if (byte == 0xED) return {3, 0x80, 0x9F};
    if (byte < 0xF0) return {3, 0x80, 0xBF};
    if (byte == 0xF0) return {4, 0x90, 0xBF};
    if (byte < 0xF4) return {4, 0x80, 0xBF};
    if (byte == 0xF4) return {4, 0x80, 0x8F};
    return {0, 0, 0};
}

}  // namespace

Utf8Step next_character(std::string_view text) {
    const Lead lead = classify(static_cast<unsigned char>(text.front()));
    if (lead.size == 0) return {Utf8State::kInvalid, 1};
    for (size_t i = 1; i < lead.size; ++i) {
        if (i == text.size()) return {Utf8State::kUnfinished, i};
        const unsigned byte = static_cast<unsigned char>(text[i]);
        const unsigned low = i == 1 ? lead.second_low : 0x80;
        const unsigned high = i == 1 ? lead.second_high : 0xBF;
        if (byte < low || byte > high) return {Utf8State::kInvalid, i};
    }
    return {Utf8State::kValid, lead.size};
}

bool is_valid_utf8(std::string_view text) {
    while (!text.empty()) {
        const Utf8Step step = next_character(text);
        if (step.state != Utf8State::kValid) return false;
        text.remove_prefix(step.size);
    }
    return true;
}

size_t num_characters(std::string_view text) {
    return static_cast<size_t>(
        std::ranges::count_if(text, [](char byte) { return !continues_character(byte); }));
}

std::string_view start_of(std::string_view text, size_t bytes_max) {
    if (text.size() <= bytes_max) return text;
    size_t end = bytes_max;
    while (end > 0 && continues_character(text[end])) --end;
    return text.substr(0, end);
}

bool is_in_utf8(uint8_t byte) {
    const bool continues = byte >= 0x80 && byte < 0xC0;
    return continues || classify(byte).size > 0;
}

void append_utf8(uint32_t code_point, std::string& out) {
    const auto put = [&out](uint32_t byte) { out.push_back(static_cast<char>(byte)); };
    if (code_point < 0x80) {
        put(code_point);
    } else if (code_point < 0x800) {
        put(0xC0 | code_point >> 6);
        put(0x80 | (code_point & 0x3F));
    } else if (code_point < 0x10000) {
        put(0xE0 | code_point >> 12);
        put(0x80 | (code_point >> 6 & 0x3F));
        put(0x80 | (code_point & 0x3F));
    } else {
        put(0xF0 | code_point >> 18);
        put(0x80 | (code_point >> 12 & 0x3F));
        put(0x80 | (code_point >> 6 & 0x3F));
        put(0x80 | (code_point & 0x3F));
    }
}

}  // namespace afd::model
