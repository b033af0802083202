// SPDX-License-Identifier: Apache-2.0
#pragma once

// UTF-8, one character at a time (Unicode 15, table 3-7: no surrogates, no overlong forms).

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace afd::model {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

enum class Utf8State {
    kValid,       // A whole character.
    kInvalid,     // A maximal part of a valid sequence, or one byte, that can never become one.
    kUnfinished,  // All of the text, and the start of a character.
};

struct Utf8Step {
    Utf8State state = Utf8State::kValid;
    size_t size = 0;  // Bytes that it takes; at least 1.
};

// What `text` begins with. REQUIRES: text is not empty.
Utf8Step next_character(std::string_view text);

bool is_valid_utf8(std::string_view text);

// How many characters valid UTF-8 has; of other text, the bytes that continue none.
size_t num_characters(std::string_view text);

// The start of `text`, of at most `bytes_max` bytes, that cuts no character: what a message shows
// of what a client sent.
std::string_view start_of(std::string_view text, size_t bytes_max);

// Whether valid UTF-8 can hold the byte: all but C0, C1 and F5..FF.
bool is_in_utf8(uint8_t byte);

void append_utf8(uint32_t code_point, std::string& out);

}  // namespace afd::model
