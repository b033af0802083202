// SPDX-License-Identifier: Apache-2.0
#pragma once

// Options of the tools that take numbers (proto/typed_number.h says why CLI11 does not check them).

#include <fmt/core.h>
#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "proto/typed_number.h"

namespace afd::tools {

// For transform(), because 010 is 10: a whole number from `low` to `high`.
inline CLI::Validator whole_from(uint64_t low, uint64_t high) {
    return {[low, high](std::string& text) { return take_whole_number(text, low, high); },
            high == UINT64_MAX ? std::string() : fmt::format("in [{} - {}]", low, high)};
}

// For check(): a finite number from `low` to `high`.
inline CLI::Validator number_from(double low, double high) {
    return {[low, high](std::string& text) { return take_number(text, low, high); },
            fmt::format("in [{:.12g} - {:.12g}]", low, high)};
}

}  // namespace afd::tools
