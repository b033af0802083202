// SPDX-License-Identifier: Apache-2.0
#pragma once

// JSON that is written, value by value, behind a text. The chunks of a stream are made here: a
// document in memory for each of them would cost more than the rest of a token's path.

#include <cstdint>
#include <string>
#include <string_view>

namespace afd::daemon {

// A string literal with its quotes. REQUIRES: `text` is UTF-8 (the output is ASCII for control
// characters and as it is for the rest).
void append_json_string(std::string_view text, std::string& out);
// The same; an empty text is null.
void append_json_string_or_null(std::string_view text, std::string& out);

void append_json_number(uint64_t value, std::string& out);
// The fewest digits that give the same float. What JSON has no number for is -9999, as OpenAI
// writes the log probability of the impossible.
void append_json_number(float value, std::string& out);

}  // namespace afd::daemon
