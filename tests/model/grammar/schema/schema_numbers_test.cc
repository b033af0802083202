// SPDX-License-Identifier: Apache-2.0
//
// Numbers in schemas: bounds, and digits that no double holds.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include "model/grammar/schema/number_range.h"
#include "model/grammar/schema/schema_program.h"
#include "proto/sanitizers.h"
#include "tests/model/grammar/grammar_texts.h"

namespace afd::model {
namespace {

// Goal: numbers that no double holds are spelled as they were written.
TEST(SchemaNumbers, SpellsLongIntegersDigitByDigit) {
    const auto program = schema_program(
        R"({"type": "integer", "enum": [18446744073709551616,
            123456789012345678901234567890, -9223372036854775809]})");
    ASSERT_TRUE(program.ok()) << program.error().message;
    for (const char* text :
         {"18446744073709551616", "123456789012345678901234567890", "-9223372036854775809"}) {
        EXPECT_TRUE(allows(program.value(), text)) << text;
    }
    EXPECT_FALSE(allows(program.value(), "1.8446744073709552e+19"));
    EXPECT_EQ(refusal(R"({"minItems": 18446744073709551616})"),
              "json_schema: #: minItems is 18446744073709551616; it must be 0 ... 100000");
}

struct Bounds {
    const char* schema;
    std::vector<const char*> allowed;
    std::vector<const char*> refused;
};

// Goal: a number is within its bounds, to the digit. Oracle: arithmetic.
TEST(SchemaNumbers, NumbersAreWithinTheirBounds) {
    const Bounds kBounds[]{
        {R"({"type": "integer", "minimum": 0})", {"0", "7", "999999999999999999"}, {"-1", "01"}},
        {R"({"type": "integer", "minimum": -5, "maximum": 120})",
         {"-5", "-1", "0", "9", "10", "99", "100", "119", "120"},
         {"-6", "-10", "121", "130", "200", "1000", "-0", "1.0"}},
        {R"({"type": "integer", "exclusiveMinimum": 17, "exclusiveMaximum": 23})",
         {"18", "19", "20", "22"},
         {"17", "23", "1", "2", "-18"}},
        {R"({"type": "integer", "minimum": 1.5, "maximum": 3.5})", {"2", "3"}, {"1", "4"}},
        {R"({"type": "integer", "maximum": -12})", {"-12", "-13", "-100"}, {"-11", "-2", "0"}},
        {R"({"type": "number", "minimum": 0, "maximum": 1})",
         {"0", "0.0", "0.25", "1", "1.000"},
         {"1.01", "-0.1", "2", "1e0", "-0"}},
        {R"({"type": "number", "exclusiveMinimum": 0})",
         {"0.001", "1", "17.5"},
         {"0", "0.00", "-1", "-0.5"}},
        {R"({"type": "number", "exclusiveMinimum": -2, "exclusiveMaximum": 3})",
         {"-1.999", "-0.5", "0", "2", "2.99"},
         {"-2", "-2.0", "3", "3.0", "-2.5"}},
        {R"({"minimum": -3, "exclusiveMaximum": 0})", {"-3", "-3.0", "-0.1"}, {"0", "-3.1", "1"}},
        {R"({"type": "integer", "minimum": 5, "exclusiveMinimum": 5})", {"6"}, {"5"}},
        {R"({"type": "integer", "maximum": 1e30})", {"999999999999999999"}, {"1.0"}},
        {R"({"type": "integer", "maximum": 18446744073709551615})", {"999999999999999999"}, {}},
        {R"({"type": "integer", "minimum": -9223372036854775808})", {"-999999999999999999"}, {}},
        {R"({"type": "number", "maximum": 999999999999999999})",
         {"999999999999999999", "999999999999999999.0", "999999999999999998.5", "-1.5"},
         {"999999999999999999.5"}},
        {R"({"type": "number", "exclusiveMinimum": 999999999999999999})",
         {"999999999999999999.5"},
         {"999999999999999999", "999999999999999999.0", "999999999999999998.5", "0"}},
        {R"({"type": "number", "exclusiveMaximum": -999999999999999999})",
         {"-999999999999999999.5"},
         {"-999999999999999999", "-999999999999999998.5", "0"}},
    };
    for (const Bounds& bounds : kBounds) {
        const auto program = schema_program(bounds.schema);
        ASSERT_TRUE(program.ok()) << program.error().message;
        for (const char* text : bounds.allowed) {
            EXPECT_TRUE(allows(program.value(), text)) << text << " against " << bounds.schema;
        }
        for (const char* text : bounds.refused) {
            EXPECT_FALSE(allows(program.value(), text)) << text << " against " << bounds.schema;
        }
    }
}

// Goal: the same of bounds that no double holds. Method: those beside the greatest and the least
// integer that is written, and the integers beside both. Oracle: comparison.
TEST(SchemaNumbers, IntegersAreWithinBoundsThatNoDoubleHolds) {
    constexpr int64_t kMost = NumberRange::kMost;
    for (const int64_t bound : {kMost, kMost - 1, kMost - 9, -kMost, 1 - kMost, 9 - kMost}) {
        for (const std::string name :
             {"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"}) {
            const bool is_least = name.ends_with("inimum");
            const bool is_excluded = name.starts_with("exclusive");
            const auto meets = [&](int64_t value) {
                if (value == bound) return !is_excluded;
                return (value > bound) == is_least;
            };
            const std::string schema =
                fmt::format(R"({{"type": "integer", "{}": {}}})", name, bound);
            if (!meets(is_least ? kMost : -kMost)) {
                EXPECT_EQ(refusal(schema), "json_schema: #: there is no number between its bounds");
                continue;
            }
            const auto program = schema_program(schema);
            ASSERT_TRUE(program.ok()) << program.error().message;
            for (int64_t i = 0; i <= 12; ++i) {
                for (const int64_t value : {kMost - i, i - kMost, i}) {
                    EXPECT_EQ(allows(program.value(), std::to_string(value)), meets(value))
                        << value << " against " << schema;
                }
            }
        }
    }
}

// Goal: the same of every integer near random bounds. Oracle: comparison.
TEST(SchemaNumbers, IntegersAreWithinRandomBounds) {
    std::mt19937_64 random(5);
    const auto draw = [&] {
        const auto size = static_cast<int64_t>(1) << (random() % 40);
        return static_cast<int64_t>(random() % (2 * size)) - size;
    };
    constexpr int kBounds = AFD_SANITIZED ? 30 : 300;
    for (int i = 0; i < kBounds; ++i) {
        int64_t least = draw();
        int64_t most = draw();
        if (least > most) std::swap(least, most);
        const auto program = schema_program(
            fmt::format(R"({{"type": "integer", "minimum": {}, "maximum": {}}})", least, most));
        ASSERT_TRUE(program.ok()) << program.error().message;
        for (const int64_t end : {least, most, int64_t{0}, draw()}) {
            for (int64_t value = end - 2; value <= end + 2; ++value) {
                EXPECT_EQ(allows(program.value(), std::to_string(value)),
                          value >= least && value <= most)
                    << value << " in " << least << " ... " << most;
            }
        }
    }
}

}  // namespace
}  // namespace afd::model
