// SPDX-License-Identifier: Apache-2.0
//
// oneOf in schemas: taken where it says what anyOf says, and judged in bounded time.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/grammar/schema/schema_reader.h"
#include "tests/model/grammar/grammar_texts.h"

namespace afd::model {
namespace {

// Goal: a oneOf is taken where it says what an anyOf says, and no other is. Oracle: whether a value
// can fit two choices.
TEST(SchemaChoices, OneOfIsTakenWhereNoValueFitsTwo) {
    for (const char* choices :
         {R"([{"type": "string"}, {"type": "integer"}, {"type": "null"}])",
          R"([{"type": "object", "properties": {"kind": {"const": "a"}}, "required": ["kind"]},
              {"$ref": "#/$defs/b"}])",
          R"([{"enum": ["a", "b"]}, {"const": "c"}, {"type": "array"}])",
          R"([{"type": "object", "properties": {"x": true}, "required": ["x"]},
              {"type": "object", "properties": {"y": true}, "additionalProperties": false}])"}) {
        const std::string schema = fmt::format(
            R"({{"oneOf": {}, "discriminator": {{"propertyName": "kind"}}, "$defs": {{"b":
                {{"type": "object", "properties": {{"kind": {{"const": "b"}}}},
                  "required": ["kind"]}}}}}})",
            choices);
        EXPECT_EQ(refusal(schema), "") << choices;
    }
    for (const char* choices :
         {R"([{"type": "number"}, {"type": "integer"}])",
          R"([{}, {"type": "null"}])",
          R"([{"enum": ["a", "b"]}, {"const": "b"}])",
          R"([{"const": 1}, {"const": 1.0}])",
          // Nothing says that these are objects only,
          R"([{"type": "null"}, {"properties": {"x": true}}])",
          // or that there is no x in the second.
          R"([{"type": "object", "properties": {"x": true}, "required": ["x"]},
                                    {"type": "object", "properties": {"y": true}}])",
          R"([{"properties": {"x": true}}, {"properties": {"y": true}}])"}) {
        EXPECT_THAT(refusal(fmt::format(R"({{"oneOf": {}}})", choices)),
                    testing::StartsWith("json_schema: #: oneOf is not supported where a value may "
                                        "fit two of its choices, as 0 and 1: "))
            << choices;
    }
    EXPECT_EQ(refusal(R"({"allOf": [{"$ref": "#/$defs/b"}], "$defs": {"b": {"type": "null"}}})"),
              "");
}

// {"oneOf": [...]} of `num_choices` objects that only a member behind seven others tells apart.
std::string discriminated(size_t num_choices) {
    std::string choices;
    for (size_t i = 0; i < num_choices; ++i) {
        std::string properties;
        std::string required;
        for (const char name : std::string_view("abcdefg")) {
            properties += fmt::format(R"("{}":{{"type":"string"}},)", name);
            required += fmt::format(R"("{}",)", name);
        }
        choices += fmt::format(R"({}{{"type":"object","properties":{{{}"kind":{{"const":"k{}"}}}},)"
                               R"("required":[{}"kind"]}})",
                               i == 0 ? "" : ",",
                               properties,
                               i,
                               required);
    }
    return R"({"oneOf":[)" + choices + "]}";
}

// Goal: what is looked at to tell choices apart is bounded, and enough for what people write.
// Method: an object whose 125 members are objects like it, 125 to the power of 16 of them; and 200
// objects that differ in the last of their members. That the former is judged at all is the test.
TEST(SchemaChoices, OneOfIsJudgedAtOnce) {
    std::string names;
    std::string properties;
    for (int i = 0; i < 125; ++i) {
        names += fmt::format(R"({}"m{}")", i == 0 ? "" : ",", i);
        properties += fmt::format(R"({}"m{}":{{"$ref":"#/$defs/A"}})", i == 0 ? "" : ",", i);
    }
    EXPECT_EQ(refusal(fmt::format(
                  R"({{"oneOf":[{{"$ref":"#/$defs/A"}},{{"$ref":"#/$defs/A"}}],"$defs":{{"A":)"
                  R"({{"type":"object","required":[{}],"properties":{{{}}}}}}}}})",
                  names,
                  properties)),
              "json_schema: #: oneOf has too many choices to tell whether a value may fit two of "
              "them; use anyOf");
    const auto read = read_json_schema(discriminated(200));
    EXPECT_TRUE(read.ok()) << read.error().message;
}

}  // namespace
}  // namespace afd::model
