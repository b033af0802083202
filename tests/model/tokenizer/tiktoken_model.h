// SPDX-License-Identifier: Apache-2.0
#pragma once

// A tiktoken.model of given tokens, each with its place among them as its rank.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace afd::model {

inline std::string base64(std::string_view bytes) {
    constexpr std::string_view kDigits =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string text;
    for (size_t i = 0; i < bytes.size(); i += 3) {
        uint32_t bits = 0;
        for (size_t j = 0; j < 3; ++j) {
            bits = bits << 8 | (i + j < bytes.size() ? static_cast<uint8_t>(bytes[i + j]) : 0u);
        }
        for (size_t j = 0; j < 4; ++j) {
            const bool is_padding = i + j > bytes.size();
            text += is_padding ? '=' : kDigits[bits >> (18 - 6 * j) & 63];
        }
    }
    return text;
}

// The 256 bytes, then `more`.
inline std::vector<std::string> tokens_with(const std::vector<std::string>& more) {
    std::vector<std::string> tokens;
    for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
    tokens.insert(tokens.end(), more.begin(), more.end());
    return tokens;
}

inline std::string tiktoken_model(const std::vector<std::string>& tokens) {
    std::string file;
    for (size_t i = 0; i < tokens.size(); ++i) {
        file += base64(tokens[i]) + " " + std::to_string(i) + "\n";
    }
    return file;
}

}  // namespace afd::model
