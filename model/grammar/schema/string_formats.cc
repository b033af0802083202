// SPDX-License-Identifier: Apache-2.0
#include "model/grammar/schema/string_formats.h"

#include <algorithm>
#include <utility>

namespace afd::model {
namespace {

constexpr std::array kNames{std::pair{"date", StringFormat::kDate},
                            std::pair{"time", StringFormat::kTime},
                            std::pair{"date-time", StringFormat::kDateTime},
                            std::pair{"uuid", StringFormat::kUuid},
                            std::pair{"ipv4", StringFormat::kIpv4}};

constexpr int kFractionDigits = 9;

}  // namespace

std::optional<StringFormat> string_format(std::string_view name) {
    for (const auto& [known, format] : kNames) {
        if (name == known) return format;
    }
    return std::nullopt;
}

StringFormats::Rule StringFormats::quoted(StringFormat format) {
    std::optional<Rule>& rule = rules_[static_cast<size_t>(format)];
    if (!rule) {
        rule = program_.declare();
        const Node close = program_.literal("\"", program_.end());
        program_.define(*rule, program_.literal("\"", body_of(format, close)));
    }
    return *rule;
}

StringFormats::Node StringFormats::body_of(StringFormat format, Node next) {
    switch (format) {
        case StringFormat::kDate:
            return date(next);
        case StringFormat::kTime:
            return time(next);
        case StringFormat::kDateTime:
            return date(program_.literal("T", time(next)));
        case StringFormat::kUuid:
            return uuid(next);
        case StringFormat::kIpv4:
            for (int i = 0; i < 3; ++i) next = program_.literal(".", octet(next));
            return octet(next);
    }
    return next;
}

StringFormats::Node StringFormats::digit(char first, char last, Node next) {
    return program_.bytes(byte_range(static_cast<uint8_t>(first), static_cast<uint8_t>(last)),
                          next);
}

StringFormats::Node StringFormats::digits(int count, Node next) {
    for (int i = 0; i < count; ++i) next = digit('0', '9', next);
    return next;
}

StringFormats::Node StringFormats::one_of(std::string_view bytes, Node next) {
    ByteSet set;
    for (const char byte : bytes) set.set(static_cast<uint8_t>(byte));
    return program_.bytes(set, next);
}

StringFormats::Node StringFormats::number(unsigned first, unsigned last, Node next) {
    std::optional<Node> any;
    for (unsigned tens = first / 10; tens <= last / 10; ++tens) {
        const unsigned low = tens == first / 10 ? first % 10 : 0;
        const unsigned high = tens == last / 10 ? last % 10 : 9;
        const Node units = program_.bytes(byte_range('0' + low, '0' + high), next);
        const Node one = program_.bytes(byte_range('0' + tens, '0' + tens), units);
        any = any ? program_.either(*any, one) : one;
    }
    return *any;
}

// Of the first three digits any but a 0 in front.
StringFormats::Node StringFormats::date(Node next) {
    const auto days = [&](unsigned last) { return program_.literal("-", number(1, last, next)); };
    const Node days_31 = days(31);
    const Node days_30 = days(30);
    const Node month = program_.either(
        program_.either(program_.literal("0", one_of("13578", days_31)),
                        program_.literal("1", one_of("02", days_31))),
        program_.either(program_.either(program_.literal("0", one_of("469", days_30)),
                                        program_.literal("11", days_30)),
                        program_.literal("02", days(28))));
    const Node any_year = digit('1', '9', digits(3, program_.literal("-", month)));
    return program_.either(any_year, leap_year(program_.literal("-02-29", next)));
}

// What 4 divides, but of the centuries what 400 divides.
StringFormats::Node StringFormats::leap_year(Node next) {
    const auto fours = [&](Node behind) {
        return program_.either(program_.literal("0", one_of("48", behind)),
                               program_.either(one_of("2468", one_of("048", behind)),
                                               one_of("13579", one_of("26", behind))));
    };
    const Node century = program_.literal("00", next);
    const Node centuries = program_.either(one_of("2468", one_of("048", century)),
                                           one_of("13579", one_of("26", century)));
    return program_.either(digit('1', '9', digits(1, fours(next))), centuries);
}

StringFormats::Node StringFormats::time(Node next) {
    const Node offset = one_of("+-", number(0, 23, program_.literal(":", number(0, 59, next))));
    const Node zone = program_.either(program_.literal("Z", next), offset);
    Node fraction = digits(1, zone);
    for (int i = 1; i < kFractionDigits; ++i) {
        fraction = digits(1, program_.either(zone, fraction));
    }
    const Node behind = program_.either(zone, program_.literal(".", fraction));
    const Node seconds = program_.literal(":", number(0, 59, behind));
    return number(0, 23, program_.literal(":", number(0, 59, seconds)));
}

StringFormats::Node StringFormats::uuid(Node next) {
    const auto hex = [&](int count, Node behind) {
        for (int i = 0; i < count; ++i) behind = one_of("0123456789abcdefABCDEF", behind);
        return behind;
    };
    next = hex(12, next);
    for (int i = 0; i < 3; ++i) next = hex(4, program_.literal("-", next));
    return hex(8, program_.literal("-", next));
}

// 0 to 255.
StringFormats::Node StringFormats::octet(Node next) {
    const Node unit = digits(1, next);
    const Node up_to_99 = program_.either(unit, digit('1', '9', unit));
    const Node from_100 = program_.literal("1", digits(2, next));
    const Node from_200 = program_.literal(
        "2", program_.either(digit('0', '4', unit), program_.literal("5", digit('0', '5', next))));
    return program_.either(up_to_99, program_.either(from_100, from_200));
}

}  // namespace afd::model
