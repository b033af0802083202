// SPDX-License-Identifier: Apache-2.0
#pragma once

// JsonRules: what every JSON text is made of (RFC 8259), as rules of a ByteProgram.
//
// Narrower than the RFC where a model could go on for ever or a reader may stumble:
//   blanks      a space, or a line break and at most kIndentMax spaces or tabs; none before the
//               text, before ',' or ':', or behind the text
//   numbers     at most kDigitsMax digits before the point and kFractionDigitsMax behind it,
//               exponents of two digits: what fits 64 bits, and a double
//   strings     well-formed UTF-8; \u escapes of surrogates in pairs only

#include <span>
#include <string>

#include "model/grammar/schema/byte_program.h"
#include "model/grammar/schema/number_range.h"
#include "model/grammar/schema/string_formats.h"

namespace afd::model {

class JsonRules {
  public:
    using Node = ByteProgram::Node;
    using Rule = ByteProgram::Rule;

    // Enough to indent ten levels by two, or five by four. Each is a token that says nothing.
    static constexpr int kIndentMax = 20;
    static constexpr int kDigitsMax = NumberRange::kDigitsMax;
    // A double of 17 digits without an exponent begins with up to five zeros.
    static constexpr int kFractionDigitsMax = NumberRange::kFractionDigitsMax;

    // Adds the rules to `program`, which outlives the object.
    explicit JsonRules(ByteProgram& program);

    Rule blanks() const { return blanks_; }
    Rule character() const { return character_; }  // One code point within quotes.
    Rule string() const { return string_; }
    Rule integer() const { return integer_; }
    Rule number() const { return number_; }
    Rule object() const { return object_; }  // With any members.
    Rule array() const { return array_; }    // Of any elements.
    Rule value() const { return value_; }    // Anything.

    Rule of_format(StringFormat format) { return formats_.quoted(format); }

    Node boolean(Node next);

    // A quoted name that is none of `taken`, and has no escapes.
    Node other_name(std::span<const std::string> taken, Node next);

  private:
    class OtherName;

    void define_blanks();
    void define_character();
    void define_string();
    void define_numbers();
    void define_object();
    void define_array();
    void define_value();
    // From one to `most` digits.
    Node digits(int most, Node next);
    // From none to `most`.
    Node more_digits(int most, Node next);
    // A character of more than one byte, except those whose first byte is in `without`.
    Node long_character(const ByteSet& without, Node next);

    ByteProgram& program_;
    StringFormats formats_;
    Rule blanks_;
    Rule character_;
    Rule string_;
    Rule integer_;
    Rule number_;
    Rule object_;
    Rule array_;
    Rule value_;
};

}  // namespace afd::model
