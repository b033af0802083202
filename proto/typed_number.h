// SPDX-License-Identifier: Apache-2.0
#pragma once

// Numbers as they stand in texts of others: command lines, variables, lists, keys of requests.
// CLI11 by itself reads 010 as 8, takes the largest number for whatever is larger, and finds NaN
// within every range. It is here because proto/ is the one folder that all programs see; it needs
// nothing of CLI11.

#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

namespace afd {

// Decimal digits and nothing else; nothing: it is none, or more than 2^64 - 1.
inline std::optional<uint64_t> whole_number(std::string_view text) {
    uint64_t value = 0;
    const char* const end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc() || rest != end) return std::nullopt;
    return value;
}

// As 0.5, -2 or 1e3; nothing: it is none, or not finite.
inline std::optional<double> finite_number(std::string_view text) {
    double value = 0;
    const char* const end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc() || rest != end || !std::isfinite(value)) return std::nullopt;
    return value;
}

// What is wrong with the text of a number from `low` to `high`; empty: nothing, and `text` is as
// CLI11 reads the same number. Both are for CLI::Validator.
inline std::string take_whole_number(std::string& text, uint64_t low, uint64_t high) {
    const std::optional<uint64_t> value = whole_number(text);
    if (!value || *value < low || *value > high) {
        return "'" + text + "' must be a whole number from " + std::to_string(low) + " to " +
               std::to_string(high);
    }
    text = std::to_string(*value);
    return {};
}

inline std::string take_number(const std::string& text, double low, double high) {
    const std::optional<double> value = finite_number(text);
    if (value && *value >= low && *value <= high) return {};
    char range[64];
    std::snprintf(range, sizeof(range), "%.12g to %.12g", low, high);
    return "'" + text + "' must be a number from " + range;
}

}  // namespace afd
