// SPDX-License-Identifier: Apache-2.0
#include "daemon/http/message/json_text.h"

#include <array>
#include <charconv>
#include <cmath>

namespace afd::daemon {

namespace {

constexpr std::string_view kHexDigits = "0123456789abcdef";

// What stands for a character inside a literal; empty: itself.
void append_escaped(char c, std::string& out) {
    switch (c) {
        case '"':
            out += "\\\"";
            return;
        case '\\':
            out += "\\\\";
            return;
        case '\n':
            out += "\\n";
            return;
        case '\r':
            out += "\\r";
            return;
        case '\t':
            out += "\\t";
            return;
        default:
            out += "\\u00";
            out += kHexDigits[static_cast<unsigned char>(c) >> 4];
            out += kHexDigits[static_cast<unsigned char>(c) & 15];
    }
}

bool needs_escape(char c) {
    return c == '"' || c == '\\' || static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
}

template <typename T>
void append_digits(T value, std::string& out) {
    std::array<char, 32> digits;
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value);
    out.append(digits.data(), end.ptr);
}

}  // namespace

void append_json_string(std::string_view text, std::string& out) {
    out += '"';
    size_t done = 0;
    for (size_t i = 0; i < text.size(); ++i) {
        if (!needs_escape(text[i])) continue;
        out.append(text, done, i - done);
        append_escaped(text[i], out);
        done = i + 1;
    }
    out.append(text, done, text.size() - done);
    out += '"';
}

void append_json_string_or_null(std::string_view text, std::string& out) {
    if (text.empty()) {
        out += "null";
    } else {
        append_json_string(text, out);
    }
}

void append_json_number(uint64_t value, std::string& out) {
    append_digits(value, out);
}

void append_json_number(float value, std::string& out) {
    append_digits(std::isfinite(value) ? value : -9999.0F, out);
}

}  // namespace afd::daemon
