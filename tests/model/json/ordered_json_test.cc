// SPDX-License-Identifier: Apache-2.0
#include "model/json/ordered_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "model/chat/message/chat_json.h"

namespace afd::model {
namespace {

using ::testing::HasSubstr;

// {"m0":0,"m1":0,...}
std::string object_of(size_t num_members) {
    std::string text = "{";
    for (size_t i = 0; i < num_members; ++i) {
        text += (i == 0 ? "\"m" : ",\"m") + std::to_string(i) + "\":0";
    }
    return text + "}";
}

std::string array_of(size_t num_values) {
    std::string text = "[";
    for (size_t i = 0; i < num_values; ++i) text += i == 0 ? "0" : ",0";
    return text + "]";
}

std::string nested(size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
}

std::string parse_refusal(const std::string& text) {
    const auto json = parse_ordered_json(text, "x");
    EXPECT_FALSE(json.ok());
    if (json.ok()) return "";
    EXPECT_EQ(json.error().code, Code::kInvalidArgument);
    return json.error().message;
}

TEST(OrderedJson, KeepsMembersInTheirOrderAndValuesAsTheyAre) {
    const std::string text = R"({"b":[1,-2,0.5,true,null],"a":{"d":"x","c":{}},"18":[]})";
    EXPECT_EQ(parse_ordered_json(text, "x").value().dump(), text);
    EXPECT_EQ(parse_ordered_json("3", "x").value(), 3);
    EXPECT_EQ(parse_ordered_json(R"({"a":1,"b":2,"a":3})", "x").value().dump(), R"({"a":3,"b":2})");
}

// Goal: a whole number is its digits, however many. Oracle: the text, and that of Python's json.
TEST(OrderedJson, KeepsTheDigitsOfLongIntegers) {
    const std::string text = R"({"a":[18446744073709551616,-9223372036854775809],)"
                             R"("b":{"c":123456789012345678901234567890}})";
    const auto json = parse_ordered_json(text, "x").value();
    EXPECT_EQ(compact_text(json), text);
    EXPECT_EQ(spaced_text(json),
              R"({"a": [18446744073709551616, -9223372036854775809], )"
              R"("b": {"c": 123456789012345678901234567890}})");
    EXPECT_TRUE(is_long_integer(json["a"][0]));
    // What fits, and what has a fraction, is a number as any other.
    EXPECT_EQ(parse_ordered_json("18446744073709551615", "x").value(), UINT64_MAX);
    EXPECT_EQ(compact_text(parse_ordered_json("[1.5,1e3]", "x").value()), "[1.5,1000.0]");
}

// The square of a limit is what an object may cost, so each limit is one: at it all is well, and
// one beyond it is refused by name.
TEST(OrderedJson, RefusesWhatIsBeyondALimit) {
    EXPECT_TRUE(parse_ordered_json(object_of(kOrderedMembersMax), "x").ok());
    EXPECT_EQ(parse_refusal(object_of(kOrderedMembersMax + 1)),
              "x: an object has more than 512 members");
    EXPECT_TRUE(parse_ordered_json(nested(kOrderedDepthMax), "x").ok());
    EXPECT_EQ(parse_refusal(nested(kOrderedDepthMax + 1)), "x: nested deeper than 64 levels");
    EXPECT_TRUE(parse_ordered_json(array_of(kOrderedValuesMax - 1), "x").ok());
    EXPECT_EQ(parse_refusal(array_of(kOrderedValuesMax)), "x: it has more than 16384 values");
    EXPECT_EQ(parse_refusal("{"), "x is not valid JSON");
    EXPECT_EQ(parse_refusal(""), "x is not valid JSON");
}

// What stands beside the member may be as large as it likes, but not deeper.
TEST(OrderedJson, OneMemberIsReadAndTheOthersArePassedOver) {
    const std::string large = R"({"a":)" + object_of(kOrderedMembersMax + 1) + R"(,"b":)" +
                              array_of(kOrderedValuesMax) + R"(,"c":[{"e":1,"d":[2]}],"f":"g"})";
    EXPECT_EQ(parse_ordered_member(large, "c", "x").value().dump(), R"({"c":[{"e":1,"d":[2]}]})");
    EXPECT_EQ(parse_ordered_member(large, "f", "x").value().dump(), R"({"f":"g"})");
    EXPECT_EQ(parse_ordered_member(large, "none", "x").value().dump(), "{}");
    EXPECT_EQ(parse_ordered_member(large, "a", "x").error().message,
              "x: an object has more than 512 members");
    EXPECT_EQ(parse_ordered_member(R"({"a":)" + nested(64) + "}", "b", "x").error().message,
              "x: nested deeper than 64 levels");
    EXPECT_EQ(parse_ordered_member("[1]", "a", "x").error().message, "x is no object");
    EXPECT_EQ(parse_ordered_member(R"({"a":1)", "b", "x").error().message, "x is not valid JSON");
}

TEST(OrderedJson, ChatsHaveItsLimits) {
    EXPECT_THAT(spaced_json(object_of(kOrderedMembersMax + 1), "tools[0]").error().message,
                HasSubstr("tools[0]: an object has more than 512 members"));
    EXPECT_EQ(spaced_json(R"({"b":1,"a":[2,3]})", "x").value(), R"({"b": 1, "a": [2, 3]})");
}

}  // namespace
}  // namespace afd::model
