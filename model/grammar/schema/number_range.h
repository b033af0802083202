// SPDX-License-Identifier: Apache-2.0
#pragma once

// NumberRange: the numbers of a JSON text that lie between whole bounds, digit by digit.
//
// They are written without leading zeros, with at most kDigitsMax digits before the point and
// kFractionDigitsMax behind it, and without an exponent. Zero has no sign.

#include <cstdint>
#include <optional>

#include "model/grammar/schema/byte_program.h"

namespace afd::model {

struct NumberRange {
    struct Bound {
        int64_t value = 0;  // Within +-kMost.
        bool is_excluded = false;
    };
    static constexpr int kDigitsMax = 18;
    static constexpr int kFractionDigitsMax = 24;
    static constexpr int64_t kMost = 999'999'999'999'999'999;

    bool is_whole = false;  // No fractions.
    std::optional<Bound> least = {};
    std::optional<Bound> most = {};

    // Whether no number lies between the bounds.
    bool is_empty() const;
    // The node in front of `next` that reads one of them. REQUIRES: !is_empty().
    ByteProgram::Node write(ByteProgram& program, ByteProgram::Node next) const;
};

}  // namespace afd::model
