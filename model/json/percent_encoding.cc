// SPDX-License-Identifier: Apache-2.0
#include "model/json/percent_encoding.h"

#include <charconv>
#include <cstdint>

namespace afd::model {

std::string percent_decoded(std::string_view text) {
    std::string decoded;
    for (size_t i = 0; i < text.size(); ++i) {
        uint8_t byte = 0;
        const std::string_view digits = text[i] == '%' ? text.substr(i + 1, 2) : "";
        const char* const end = digits.data() + digits.size();
        const auto read = std::from_chars(digits.data(), end, byte, 16);
        const bool is_escape = digits.size() == 2 && read.ec == std::errc() && read.ptr == end;
        decoded += is_escape ? static_cast<char>(byte) : text[i];
        if (is_escape) i += 2;
    }
    return decoded;
}

}  // namespace afd::model
