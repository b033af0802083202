// SPDX-License-Identifier: Apache-2.0
#pragma once

// StringFormats: the values of `format` in a JSON Schema that a model is held to, as rules of a
// ByteProgram. Those that a few states tell from everything else:
//
//   date       1994-11-05: a day that there is, of the years 1000 to 9999
//   time       08:15:30.5Z, 08:15:30+02:00: RFC 3339; without leap seconds, with up to nine digits
//              of a fraction
//   date-time  one, 'T', the other
//   uuid       123e4567-e89b-12d3-a456-426614174000
//   ipv4       192.0.2.1: no number begins with a 0 but 0 itself
//
// Narrower than their documents where readers differ: 'T' and 'Z' are capitals, and no byte is
// escaped.

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "model/grammar/schema/byte_program.h"

namespace afd::model {

enum class StringFormat : uint8_t { kDate, kTime, kDateTime, kUuid, kIpv4 };

// Nothing: it is none that is held to.
std::optional<StringFormat> string_format(std::string_view name);

class StringFormats {
  public:
    using Node = ByteProgram::Node;
    using Rule = ByteProgram::Rule;

    // Adds rules to `program`, which outlives the object, when they are first asked for.
    explicit StringFormats(ByteProgram& program) : program_(program) {}

    // A text of that format within quotes.
    Rule quoted(StringFormat format);

  private:
    Node body_of(StringFormat format, Node next);
    // Each reads what it is called, then `next`.
    Node date(Node next);
    Node leap_year(Node next);
    Node time(Node next);
    Node uuid(Node next);
    Node octet(Node next);
    Node digit(char first, char last, Node next);
    Node digits(int count, Node next);
    Node one_of(std::string_view bytes, Node next);
    // Two digits, from `first` to `last`.
    Node number(unsigned first, unsigned last, Node next);

    ByteProgram& program_;
    std::array<std::optional<Rule>, 5> rules_;  // By the format.
};

}  // namespace afd::model
