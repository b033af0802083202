// SPDX-License-Identifier: Apache-2.0
#include "model/grammar/schema/json_rules.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

namespace afd::model {
namespace {

ByteSet one_of(std::string_view bytes) {
    ByteSet set;
    for (const char byte : bytes) set.set(static_cast<uint8_t>(byte));
    return set;
}

const ByteSet& digit() {
    static const ByteSet kDigit = byte_range('0', '9');
    return kDigit;
}

// ASCII that stands for itself within quotes.
ByteSet plain_ascii() {
    return byte_range(0x20, 0x7f) & ~one_of("\"\\");
}

}  // namespace

JsonRules::JsonRules(ByteProgram& program)
    : program_(program),
      formats_(program),
      blanks_(program.declare()),
      character_(program.declare()),
      string_(program.declare()),
      integer_(program.declare()),
      number_(program.declare()),
      object_(program.declare()),
      array_(program.declare()),
      value_(program.declare()) {
    define_blanks();
    define_character();
    define_string();
    define_numbers();
    define_object();
    define_array();
    define_value();
}

void JsonRules::define_blanks() {
    const Node end = program_.end();
    Node indent = end;
    for (int i = 0; i < kIndentMax; ++i) {
        indent = program_.either(end, program_.bytes(one_of(" \t"), indent));
    }
    const Node line = program_.bytes(one_of("\n"), indent);
    const Node line_break = program_.either(line, program_.bytes(one_of("\r"), line));
    program_.define(
        blanks_,
        program_.either(end, program_.either(program_.bytes(one_of(" "), end), line_break)));
}

// Table 3-7 of the Unicode standard: the first byte says what the second may be.
JsonRules::Node JsonRules::long_character(const ByteSet& without, Node next) {
    const Node last = program_.bytes(byte_range(0x80, 0xbf), next);
    const Node last_two = program_.bytes(byte_range(0x80, 0xbf), last);
    struct Form {
        ByteSet first;
        ByteSet second;
        Node rest;
    };
    const std::array forms{
        Form{byte_range(0xe0, 0xe0), byte_range(0xa0, 0xbf), last},
        Form{byte_range(0xe1, 0xef) & ~byte_range(0xed, 0xed), byte_range(0x80, 0xbf), last},
        Form{byte_range(0xed, 0xed), byte_range(0x80, 0x9f), last},
        Form{byte_range(0xf0, 0xf0), byte_range(0x90, 0xbf), last_two},
        Form{byte_range(0xf1, 0xf3), byte_range(0x80, 0xbf), last_two},
        Form{byte_range(0xf4, 0xf4), byte_range(0x80, 0x8f), last_two}};
    Node node = program_.bytes(byte_range(0xc2, 0xdf) & ~without, last);
    for (const Form& form : forms) {
        const Node second = program_.bytes(form.second, form.rest);
        node = program_.either(program_.bytes(form.first & ~without, second), node);
    }
    return node;
}

void JsonRules::define_character() {
    const Node end = program_.end();
    const ByteSet hex = digit() | one_of("abcdefABCDEF");
    const auto any_hex = [&](int count, Node next) {
        for (int i = 0; i < count; ++i) next = program_.bytes(hex, next);
        return next;
    };
    const Node low = program_.literal(
        "\\u", program_.bytes(one_of("dD"), program_.bytes(one_of("cdefCDEF"), any_hex(2, end))));
    const Node surrogate = program_.either(program_.bytes(one_of("01234567"), any_hex(2, end)),
                                           program_.bytes(one_of("89abAB"), any_hex(2, low)));
    const Node unicode = program_.either(program_.bytes(hex & ~one_of("dD"), any_hex(3, end)),
                                         program_.bytes(one_of("dD"), surrogate));
    const Node escaped = program_.either(program_.bytes(one_of("\"\\/bfnrt"), end),
                                         program_.bytes(one_of("u"), unicode));
    const Node escape = program_.bytes(one_of("\\"), escaped);
    program_.define(character_,
                    program_.either(program_.bytes(plain_ascii(), end),
                                    program_.either(escape, long_character({}, end))));
}

void JsonRules::define_string() {
    const Node loop = program_.reserve();
    const Node close = program_.literal("\"", program_.end());
    program_.become_split(loop, close, program_.call(character_, loop));
    program_.define(string_, program_.literal("\"", loop));
}

JsonRules::Node JsonRules::more_digits(int most, Node next) {
    Node node = next;
    for (int i = 0; i < most; ++i) node = program_.either(next, program_.bytes(digit(), node));
    return node;
}

JsonRules::Node JsonRules::digits(int most, Node next) {
    return program_.bytes(digit(), more_digits(most - 1, next));
}

void JsonRules::define_numbers() {
    const auto whole = [&](Node next) {
        const Node more = more_digits(kDigitsMax - 1, next);
        const Node magnitude = program_.either(program_.literal("0", next),
                                               program_.bytes(byte_range('1', '9'), more));
        return program_.either(magnitude, program_.literal("-", magnitude));
    };
    const Node end = program_.end();
    program_.define(integer_, whole(end));
    const Node power = digits(2, end);
    const Node sign = program_.either(power, program_.bytes(one_of("+-"), power));
    const Node exponent = program_.either(end, program_.bytes(one_of("eE"), sign));
    const Node fraction =
        program_.either(exponent, program_.literal(".", digits(kFractionDigitsMax, exponent)));
    program_.define(number_, whole(fraction));
}

JsonRules::Node JsonRules::boolean(Node next) {
    return program_.either(program_.literal("true", next), program_.literal("false", next));
}

void JsonRules::define_object() {
    const Node close = program_.call(blanks_, program_.literal("}", program_.end()));
    const Node more = program_.reserve();
    const Node member = program_.call(
        string_, program_.literal(":", program_.call(blanks_, program_.call(value_, more))));
    program_.become_split(more, close, program_.literal(",", program_.call(blanks_, member)));
    program_.define(object_,
                    program_.literal("{", program_.either(close, program_.call(blanks_, member))));
}

void JsonRules::define_array() {
    const Node close = program_.call(blanks_, program_.literal("]", program_.end()));
    const Node more = program_.reserve();
    const Node element = program_.call(value_, more);
    program_.become_split(more, close, program_.literal(",", program_.call(blanks_, element)));
    program_.define(array_,
                    program_.literal("[", program_.either(close, program_.call(blanks_, element))));
}

void JsonRules::define_value() {
    const Node end = program_.end();
    Node node = program_.either(boolean(end), program_.literal("null", end));
    for (const Rule rule : {number_, string_, array_, object_}) {
        node = program_.either(program_.call(rule, end), node);
    }
    program_.define(value_, node);
}

// A trie of the names that are taken: who leaves it is free, who ends on a name is not let out.
class JsonRules::OtherName {
  public:
    // `taken`: ascending.
    OtherName(JsonRules& json, std::vector<std::string> taken, Node next)
        : json_(json),
          program_(json.program_),
          taken_(std::move(taken)),
          close_(program_.literal("\"", next)),
          free_(program_.reserve()) {
        program_.become_split(
            free_,
            close_,
            program_.either(program_.bytes(plain_ascii(), free_), json_.long_character({}, free_)));
    }

    Node quoted() { return program_.literal("\"", behind(0, taken_.size(), 0)); }

  private:
    // What follows the first `depth` bytes that the names [first, last) have in common.
    Node behind(size_t first, size_t last, size_t depth) {
        if (program_.is_full()) return close_;
        const bool is_name = first < last && taken_[first].size() == depth;
        ByteSet inner;
        std::optional<Node> any;
        const auto add = [&](Node one) { any = any ? program_.either(*any, one) : one; };
        for (size_t i = first + (is_name ? 1 : 0); i < last;) {
            size_t end = i;
            while (end < last && taken_[end][depth] == taken_[i][depth]) ++end;
            const auto byte = static_cast<uint8_t>(taken_[i][depth]);
            inner.set(byte);
            add(program_.bytes(byte_range(byte, byte), behind(i, end, depth + 1)));
            i = end;
        }
        // In the middle of a character only the names go on: those that share a first byte with a
        // name are not offered.
        const bool in_character = (inner & byte_range(0x80, 0xbf)).any();
        if (!in_character) {
            add(program_.bytes(plain_ascii() & ~inner, free_));
            add(json_.long_character(inner, free_));
            if (!is_name) add(close_);
        }
        return *any;
    }

    JsonRules& json_;
    ByteProgram& program_;
    const std::vector<std::string> taken_;
    const Node close_;
    const Node free_;  // No name that is taken goes on like this.
};

JsonRules::Node JsonRules::other_name(std::span<const std::string> taken, Node next) {
    std::vector<std::string> names;
    for (const std::string& name : taken) {
        // What needs an escape is none of those that are offered.
        const bool is_plain = std::all_of(name.begin(), name.end(), [](char byte) {
            return static_cast<uint8_t>(byte) >= 0x80 || plain_ascii()[static_cast<uint8_t>(byte)];
        });
        if (is_plain) names.push_back(name);
    }
    std::sort(names.begin(), names.end());
    return OtherName(*this, std::move(names), next).quoted();
}

}  // namespace afd::model
