// SPDX-License-Identifier: Apache-2.0
#include "model/unicode/character_kind.h"

#include <utf8proc.h>

#include <cstdint>

#include "model/unicode/unicode_additions.h"

namespace afd::model {
namespace {

struct CodePoint {
    int32_t value;
    size_t size;
};

CodePoint first_of(std::string_view text) {
    utf8proc_int32_t value = 0;
    const utf8proc_ssize_t size =
        utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                         static_cast<utf8proc_ssize_t>(text.size()),
                         &value);
    return {value, static_cast<size_t>(size)};
}

CodePoint last_of(std::string_view text) {
    size_t begin = text.size() - 1;
    while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
    return first_of(text.substr(begin));
}

bool is_blank(int32_t code_point) {
    const bool is_control = (code_point >= 0x09 && code_point <= 0x0D) || code_point == 0x85;
    if (code_point < 0x80) return is_control || code_point == ' ';
    switch (utf8proc_category(code_point)) {
        case UTF8PROC_CATEGORY_ZS:
        case UTF8PROC_CATEGORY_ZL:
        case UTF8PROC_CATEGORY_ZP:
            return true;
        default:
            return is_control;
    }
}

// Of what libutf8proc, with Unicode 15, does not have.
bool is_new_word_character(int32_t code_point) {
    for (const UnicodeAddition& addition : unicode_additions()) {
        const auto point = static_cast<uint32_t>(code_point);
        if (point < addition.first || point > addition.last) continue;
        const std::string_view category = addition.category;
        return category.starts_with('L') || category.starts_with('M') || category == "Nd" ||
               category == "Nl" || category == "Pc";
    }
    return false;
}

bool is_word_character(int32_t code_point) {
    // The joiners of Indic and Arabic script and the circled letters count as well.
    const bool is_joiner = code_point == 0x200C || code_point == 0x200D;
    const bool is_circled = (code_point >= 0x24B6 && code_point <= 0x24E9) ||
                            (code_point >= 0x1F130 && code_point <= 0x1F149) ||
                            (code_point >= 0x1F150 && code_point <= 0x1F169) ||
                            (code_point >= 0x1F170 && code_point <= 0x1F189);
    switch (utf8proc_category(code_point)) {
        case UTF8PROC_CATEGORY_LU:
        case UTF8PROC_CATEGORY_LL:
        case UTF8PROC_CATEGORY_LT:
        case UTF8PROC_CATEGORY_LM:
        case UTF8PROC_CATEGORY_LO:
        case UTF8PROC_CATEGORY_MN:
        case UTF8PROC_CATEGORY_MC:
        case UTF8PROC_CATEGORY_ME:
        case UTF8PROC_CATEGORY_ND:
        case UTF8PROC_CATEGORY_NL:
        case UTF8PROC_CATEGORY_PC:
            return true;
        case UTF8PROC_CATEGORY_CN:
            return is_new_word_character(code_point);
        default:
            return is_joiner || is_circled;
    }
}

}  // namespace

size_t blanks_at_start(std::string_view text) {
    size_t size = 0;
    while (size < text.size()) {
        const CodePoint first = first_of(text.substr(size));
        if (!is_blank(first.value)) break;
        size += first.size;
    }
    return size;
}

size_t blanks_at_end(std::string_view text) {
    size_t size = text.size();
    while (size > 0) {
        const CodePoint last = last_of(text.substr(0, size));
        if (!is_blank(last.value)) break;
        size -= last.size;
    }
    return text.size() - size;
}

bool begins_with_word_character(std::string_view text) {
    return !text.empty() && is_word_character(first_of(text).value);
}

bool ends_with_word_character(std::string_view text) {
    return !text.empty() && is_word_character(last_of(text).value);
}

}  // namespace afd::model
