// SPDX-License-Identifier: Apache-2.0
//
// Schemas as programs: what they allow, what is written under their masks, what is refused.
#include "model/grammar/schema_program.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "model/grammar/schema_reader.h"
#include "tests/model/grammar/grammar_texts.h"
#include "tests/model/grammar/schema_validator.h"

namespace afd::model {
namespace {

using Json = nlohmann::json;

// Each has something of everything that is known.
constexpr const char* kSchemas[]{
    R"({"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
        "required": ["name", "age"], "additionalProperties": false})",
    R"({"type": "object", "properties": {"name": {"type": "string", "maxLength": 3}, "é": true,
        "id": {"type": ["integer", "null"]}}, "required": ["id"],
        "additionalProperties": {"type": "boolean"}})",
    R"({"type": "array", "items": {"enum": ["red", "green", 12, null, {"a": [1]}]}, "minItems": 1,
        "maxItems": 4})",
    R"({"type": "array", "prefixItems": [{"type": "string"}, {"type": "number"}], "items": false,
        "minItems": 1})",
    R"({"type": "array", "prefixItems": [{"const": true}], "items": {"type": "null"}})",
    R"({"$defs": {"tree": {"type": "object", "properties": {"name": {"type": "string",
        "minLength": 1}, "children": {"type": "array", "items": {"$ref": "#/$defs/tree"}}},
        "required": ["name"]}}, "$ref": "#/$defs/tree"})",
    R"({"anyOf": [{"type": "object", "properties": {"name": {"const": "a"}}, "required": ["name"]},
        {"type": "object", "properties": {"name": {"type": "integer"}, "age": {"type": "number"}},
        "required": ["name"]}, {"type": "string", "minLength": 2, "maxLength": 5}]})",
    R"({"properties": {"a": {"items": {"type": "boolean"}}}, "required": ["a"], "title": "T"})",
    R"({"type": "object", "additionalProperties": {"type": "array", "maxItems": 0}})",
    R"({"type": "array", "items": {"anyOf": [{"type": "string", "format": "date"},
        {"type": "string", "format": "time"}, {"type": ["string", "null"], "format": "uuid"},
        {"type": "string", "format": "date-time"}, {"type": "string", "format": "ipv4"}]}})",
    R"({"type": "array", "items": {"oneOf": [{"type": "number", "minimum": -3, "maximum": 12},
        {"allOf": [{"enum": ["a", "b"]}]}, {"type": "object", "properties": {"n":
        {"type": "integer", "exclusiveMinimum": 4, "x-unit": "m"}}, "required": ["n"]}]}})",
};

// Goal: whatever is written under the masks is valid. Method: tokens drawn at random among those
// that may come, from a vocabulary with cut pieces. Oracle: a parser and a validator that look at
// the value.
TEST(SchemaProgram, RandomTextsUnderItsMasksAreValid) {
    const std::vector<std::string> tokens = small_vocabulary();
    const auto vocabulary = std::make_shared<const VocabularyTrie>(tokens);
    std::mt19937 random(3);
    for (const char* schema : kSchemas) {
        const auto program = schema_program(schema);
        ASSERT_TRUE(program.ok()) << program.error().message;
        const Json root = Json::parse(schema);
        int num_ended = 0;
        for (int i = 0; i < 60; ++i) {
            TokenConstraint constraint(program.value(), vocabulary, {0});
            const std::string text = random_text(constraint, tokens, random, 200);
            if (text.empty()) continue;
            ++num_ended;
            const Json value = Json::parse(text, nullptr, false);
            ASSERT_FALSE(value.is_discarded()) << text;
            EXPECT_TRUE(is_valid(value, root, root)) << text << " against " << schema;
        }
        EXPECT_GT(num_ended, 20) << schema;
    }
}

std::string refusal(const std::string& schema) {
    const auto program = schema_program(schema);
    if (program.ok()) return "";
    EXPECT_EQ(program.error().code, Code::kInvalidArgument);
    return program.error().message;
}

struct Verdict {
    const char* schema;
    const char* text;
    bool is_allowed;
};

TEST(SchemaProgram, AllowsWhatItSays) {
    const Verdict kVerdicts[]{
        {kSchemas[0], R"({"name": "Ann", "age": 31})", true},
        {kSchemas[0], R"({"name":"","age":-0})", true},
        {kSchemas[0], R"({"name": "Ann", "age": 3.5})", false},
        {kSchemas[0], R"({"age": 31, "name": "Ann"})", false},  // Their order is the schema's.
        {kSchemas[0], R"({"name": "Ann"})", false},
        {kSchemas[0], R"({"name": "Ann", "age": 31, "x": 1})", false},
        {kSchemas[1], R"({"id": null})", true},
        {kSchemas[1], R"({"é": [{}], "id": 1, "names": true, "": false})", true},
        {kSchemas[1], R"({"name": "日本é", "id": 1})", true},
        {kSchemas[1], R"({"name": "four", "id": 1})", false},
        {kSchemas[1], R"({"id": 1, "name": true})", false},  // A name that is taken is not free.
        {kSchemas[2], R"(["red", {"a":[1]}, null, 12])", true},
        {kSchemas[2], R"([])", false},
        {kSchemas[2], R"(["blue"])", false},
        {kSchemas[2], R"([12, 12, 12, 12, 12])", false},
        {kSchemas[3], R"(["a"])", true},
        {kSchemas[3], R"(["a", 2e3])", true},
        {kSchemas[3], R"(["a", 2, 3])", false},
        {kSchemas[4], R"([])", true},
        {kSchemas[4], R"([true, null, null, null])", true},
        {kSchemas[4], R"([null])", false},
        {kSchemas[5], R"({"name": "a", "children": [{"name": "b", "children": []}]})", true},
        {kSchemas[5], R"({"name": "a", "children": [{}]})", false},
        {kSchemas[6], R"({"name": "a"})", true},
        {kSchemas[6], R"({"name": 3, "age": 0.5})", true},
        {kSchemas[6], R"({"name": "b"})", false},
        {kSchemas[6], R"("12345")", true},
        {kSchemas[6], R"("123456")", false},
        // As pydantic writes Literal["a"].
        {R"({"const": "a", "enum": ["a"], "type": "string"})", R"("a")", true},
        {R"({"enum": ["a", 1, "b"], "const": "b"})", R"("b")", true},
        {R"({"enum": ["a", 1, "b"], "const": "b"})", R"("a")", false},
    };
    for (const Verdict& verdict : kVerdicts) {
        const auto program = schema_program(verdict.schema);
        ASSERT_TRUE(program.ok()) << program.error().message;
        EXPECT_EQ(allows(program.value(), verdict.text), verdict.is_allowed)
            << verdict.text << " against " << verdict.schema;
        const Json value = Json::parse(verdict.text);
        if (verdict.is_allowed) {
            EXPECT_TRUE(is_valid(value, Json::parse(verdict.schema), Json::parse(verdict.schema)));
        }
    }
}

// Goal: each format that is held to takes what is of it, and nothing else. Oracle: the documents
// that define them (RFC 3339, 4122 and 2673).
TEST(SchemaProgram, StringsAreHeldToTheirFormats) {
    struct Format {
        const char* name;
        std::vector<const char*> allowed;
        std::vector<const char*> refused;
    };
    const Format kFormats[]{
        {"date",
         {"1994-11-05", "2024-02-29", "2000-02-29", "2023-02-28", "1000-01-31", "9999-12-31"},
         {"1994-13-05",
          "1994-00-05",
          "1994-11-31",
          "2023-02-29",
          "1900-02-29",
          "2024-02-30",
          "0999-01-01",
          "94-11-05",
          "1994-11-5",
          "1994-11-05 ",
          "1994-04-00",
          "1994-01-32",
          ""}},
        {"time",
         {"08:15:30Z", "23:59:59.123456789+02:00", "00:00:00.5-23:59"},
         {"08:15:30",
          "24:00:00Z",
          "08:60:00Z",
          "08:15:60Z",
          "08:15:30.Z",
          "08:15:30z",
          "08:15:30.1234567890Z",
          "08:15Z",
          "8:15:30Z",
          "08:15:30+24:00",
          "08:15:30+0200"}},
        {"date-time",
         {"1994-11-05T08:15:30-05:00", "2024-02-29T00:00:00.000Z"},
         {"1994-11-05 08:15:30Z",
          "1994-11-05t08:15:30Z",
          "1994-11-05T08:15:30",
          "1994-11-05",
          "2023-02-29T00:00:00Z"}},
        {"uuid",
         {"123e4567-e89b-12d3-a456-426614174000", "00000000-0000-0000-0000-00000000ABCD"},
         {"123e4567e89b12d3a456426614174000",
          "{123e4567-e89b-12d3-a456-426614174000}",
          "123e4567-e89b-12d3-a456-42661417400",
          "123g4567-e89b-12d3-a456-426614174000"}},
        {"ipv4",
         {"192.0.2.1", "0.0.0.0", "255.255.255.255", "10.99.100.249"},
         {"256.0.0.1", "01.2.3.4", "1.2.3", "1.2.3.4.5", "1.2.3.", "300.1.1.1", "1.2.3.260"}},
    };
    for (const Format& format : kFormats) {
        const std::string schema =
            fmt::format(R"({{"type": "string", "format": "{}"}})", format.name);
        const Json root = Json::parse(schema);
        const auto program = schema_program(schema).value();
        for (const char* text : format.allowed) {
            EXPECT_TRUE(allows(program, Json(text).dump())) << text;
            EXPECT_TRUE(is_valid(text, root, root)) << text;
        }
        for (const char* text : format.refused) {
            EXPECT_FALSE(allows(program, Json(text).dump())) << text;
        }
    }
}

TEST(SchemaProgram, TellsTheFormatsThatNothingIsHeldTo) {
    const auto ignored = [](const char* schema) {
        return read_json_schema(schema).value().ignored;
    };
    EXPECT_THAT(ignored(R"({"type": "string", "format": "date"})"), testing::IsEmpty());
    EXPECT_THAT(ignored(R"({"type": ["string", "null"], "format": "uuid"})"), testing::IsEmpty());
    EXPECT_THAT(ignored(R"({"type": "string", "format": "email"})"),
                testing::ElementsAre("/format"));
    // Only one of both constraints is kept.
    EXPECT_THAT(ignored(R"({"type": "string", "format": "date", "maxLength": 3})"),
                testing::ElementsAre("/format"));
    EXPECT_FALSE(
        allows(schema_program(R"({"type": "string", "format": "date", "maxLength": 3})").value(),
               "\"1994-11-05\""));
    EXPECT_THAT(
        ignored(R"({"properties": {"a": {"type": "integer", "format": "int32"},
                            "b": {"$ref": "#/$defs/c"}, "d": {"format": 3}},
                            "$defs": {"c": {"type": "string", "format": "uri"}}})"),
        testing::ElementsAre("/properties/a/format", "/properties/d/format", "/$defs/c/format"));
    // Who lists values has chosen their format.
    EXPECT_THAT(ignored(R"({"type": "string", "format": "email", "enum": ["a@b.c"]})"),
                testing::IsEmpty());
}

// Goal: a $ref leads where a JSON pointer in a URI leads. Oracle: RFC 6901; the validator, which
// follows it by nlohmann's pointers.
TEST(SchemaProgram, ReferencesLeadThroughArraysAndEscapes) {
    constexpr const char* kInArray =
        R"({"properties": {"a": {"anyOf": [{"const": 1}, {"const": 2}]},
            "b": {"$ref": "#/properties/a/anyOf/1"}}, "required": ["a", "b"]})";
    constexpr const char* kEscaped =
        R"({"definitions": {"Foo<Bar>": {"const": 3}, "a/b~c%": {"const": 4}},
            "type": "array", "prefixItems": [{"$ref": "#/definitions/Foo%3CBar%3E"},
            {"$ref": "#/definitions/a~1b~0c%25"}], "items": false, "minItems": 2})";
    const std::pair<const char*, const char*> kTexts[]{{kInArray, R"({"a": 1, "b": 2})"},
                                                       {kEscaped, "[3, 4]"}};
    for (const auto& [schema, text] : kTexts) {
        const auto program = schema_program(schema);
        ASSERT_TRUE(program.ok()) << program.error().message;
        EXPECT_TRUE(allows(program.value(), text)) << schema;
        const Json root = Json::parse(schema);
        EXPECT_TRUE(is_valid(Json::parse(text), root, root)) << schema;
    }
    EXPECT_FALSE(allows(schema_program(kInArray).value(), R"({"a": 1, "b": 1})"));
    for (const char* index : {"01", "9", "-1", "x", ""}) {
        EXPECT_EQ(refusal(fmt::format(
                      R"({{"anyOf": [true, {{"items": {{"$ref": "#/anyOf/{}"}}}}]}})", index)),
                  fmt::format("json_schema: #/anyOf/1/items: $ref is \"#/anyOf/{}\", which is not "
                              "there",
                              index));
    }
}

// Goal: numbers that no double holds are spelled as they were written.
TEST(SchemaProgram, SpellsLongIntegersDigitByDigit) {
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

TEST(SchemaProgram, RefusesByName) {
    EXPECT_EQ(refusal("{"), "json_schema is not valid JSON");
    EXPECT_EQ(refusal("3"), "json_schema: #: is 3; it must be an object or true");
    EXPECT_EQ(refusal("false"), "json_schema: #: is false; it must be an object or true");
    EXPECT_EQ(refusal(R"({"type": "string", "pattern": "a+"})"),
              "json_schema: #: \"pattern\" is not supported; known are $defs, $ref, "
              "additionalProperties, allOf, anyOf, const, definitions, enum, exclusiveMaximum, "
              "exclusiveMinimum, items, maxItems, maxLength, maximum, minItems, minLength, "
              "minimum, oneOf, prefixItems, properties, required, type");
    EXPECT_EQ(refusal(R"({"properties": {"a": {"type": "text"}}})"),
              "json_schema: #/properties/a: type is \"text\"; known are null, boolean, integer, "
              "number, string, array, object, and lists of them");
    EXPECT_EQ(
        refusal(R"({"type": []})"),
        "json_schema: #: type is []; known are null, boolean, integer, number, string, array, "
        "object, and lists of them");
    EXPECT_EQ(refusal(R"({"anyOf": [{}], "properties": {}})"),
              "json_schema: #: \"properties\" beside anyOf is not supported");
    EXPECT_EQ(refusal(R"({"enum": []})"),
              "json_schema: #: enum is []; it must be a list of values");
    EXPECT_EQ(refusal(R"({"$ref": "https://a.b/c"})"),
              "json_schema: #: $ref is \"https://a.b/c\"; it must lead into the schema: "
              "#/$defs/...");
    EXPECT_EQ(refusal(R"({"items": {"$ref": "#/$defs/x"}})"),
              "json_schema: #/items: $ref is \"#/$defs/x\", which is not there");
    EXPECT_EQ(refusal(R"({"anyOf": [{"$ref": "#"}, {"type": "null"}]})"),
              "json_schema: #: a $ref leads back to itself before any text");
    EXPECT_EQ(refusal(R"({"properties": {"a": {"$id": "urn:x"}}})"),
              "json_schema: #/properties/a: $id is not supported within a schema");
    EXPECT_EQ(refusal(R"({"type": "strnig", "enum": ["a"]})"),
              "json_schema: #: type is \"strnig\"; known are null, boolean, integer, number, "
              "string, array, object, and lists of them");
    EXPECT_EQ(refusal(R"({"type": "object", "const": 1})"),
              "json_schema: #: none of its values is of type \"object\"");
    EXPECT_EQ(refusal(R"({"const": "c", "enum": ["a", "b"]})"),
              "json_schema: #: const is \"c\", which is none of its enum");
    EXPECT_EQ(refusal(R"({"const": "a", "enum": "a"})"),
              "json_schema: #: enum is \"a\"; it must be a list of values");
    EXPECT_EQ(refusal(R"({"const": 1, "enum": [1], "type": "string"})"),
              "json_schema: #: none of its values is of type \"string\"");
    EXPECT_EQ(refusal(R"({"const": "a", "enum": ["a"], "items": true})"),
              "json_schema: #: \"items\" beside const is not supported");
    EXPECT_EQ(refusal(R"({"properties": {"a": true}, "required": ["a", "a"]})"),
              "json_schema: #: required has \"a\" twice");
    EXPECT_EQ(refusal(R"({"type": "array", "minItems": 3, "maxItems": 2})"),
              "json_schema: #: minItems is 3, and maxItems is 2");
    EXPECT_EQ(refusal(R"({"type": "array", "minItems": -1})"),
              "json_schema: #: minItems is -1; it must be 0 ... 100000");
    EXPECT_EQ(refusal(R"({"prefixItems": [true], "items": false, "minItems": 2})"),
              "json_schema: #: minItems is 2, and there are 1 prefixItems");
    EXPECT_EQ(refusal(R"({"properties": {}, "required": ["a"]})"),
              "json_schema: #: required has \"a\", which is none of its properties");
    EXPECT_EQ(refusal(R"({"type": "string", "maxLength": 100000})"),
              "json_schema: #: it needs more than 100000 steps; minItems, maxItems, minLength, "
              "maxLength and long lists add up");
    std::string deep = "true";
    for (int i = 0; i < 70; ++i) deep = R"({"items": )" + deep + "}";
    EXPECT_EQ(refusal(deep), "json_schema: nested deeper than 64 levels");
    EXPECT_EQ(refusal(R"({"allOf": [{}, {}]})"),
              "json_schema: #: allOf of 2 schemas is not supported; of one it is");
    EXPECT_EQ(refusal(R"({"minimum": "1"})"),
              "json_schema: #: minimum is \"1\"; it must be a number");
    EXPECT_EQ(refusal(R"({"type": "number", "maximum": 0.5})"),
              "json_schema: #: maximum is 0.5: bounds of numbers that are not integers must be "
              "whole");
    for (const char* none : {R"({"type": "integer", "minimum": 3, "maximum": 2})",
                             R"({"type": "integer", "exclusiveMinimum": 1, "maximum": 1})",
                             R"({"type": "integer", "minimum": 1.1, "maximum": 1.9})",
                             R"({"type": "number", "minimum": 1e300})"}) {
        EXPECT_EQ(refusal(none), "json_schema: #: there is no number between its bounds") << none;
    }
    EXPECT_EQ(refusal(std::string(kSchemaBytesMax + 1, ' ')),
              "json_schema: #: it has 65537 bytes; at most 65536");
}

// Goal: what refers to what refers to another is no nesting, in whatever order it is written.
TEST(SchemaProgram, ReferencesAreNoNesting) {
    std::string chain = R"({"$ref": "#/$defs/d70", "$defs": {"d0": true)";
    for (int i = 1; i <= 70; ++i) {
        chain += fmt::format(R"(, "d{}": {{"items": {{"$ref": "#/$defs/d{}"}}}})", i, i - 1);
    }
    EXPECT_EQ(refusal(chain + "}}"), "");
}

struct Bounds {
    const char* schema;
    std::vector<const char*> allowed;
    std::vector<const char*> refused;
};

// Goal: a number is within its bounds, to the digit. Oracle: arithmetic.
TEST(SchemaProgram, NumbersAreWithinTheirBounds) {
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

// Goal: the same of every integer near random bounds. Oracle: comparison.
TEST(SchemaProgram, IntegersAreWithinRandomBounds) {
    std::mt19937_64 random(5);
    const auto draw = [&] {
        const auto size = static_cast<int64_t>(1) << (random() % 40);
        return static_cast<int64_t>(random() % (2 * size)) - size;
    };
    for (int i = 0; i < 300; ++i) {
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

// Goal: a oneOf is taken where it says what an anyOf says, and no other is. Oracle: whether a value
// can fit two choices.
TEST(SchemaProgram, OneOfIsTakenWhereNoValueFitsTwo) {
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
TEST(SchemaProgram, OneOfIsJudgedAtOnce) {
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

// Goal: no way is offered that no text ends. Oracle: the schema, whose texts can be counted.
TEST(SchemaProgram, EndlessWaysAreNotOffered) {
    const auto program = schema_program(
        R"({"$defs": {"n": {"type": "object", "properties": {"next": {"$ref": "#/$defs/n"}},
            "required": ["next"]}}, "anyOf": [{"$ref": "#/$defs/n"}, {"type": "null"}]})");
    ASSERT_TRUE(program.ok()) << program.error().message;
    GrammarAutomaton automaton(program.value());
    EXPECT_NE(automaton.next(automaton.start(), 'n'), GrammarAutomaton::kDead);
    EXPECT_EQ(automaton.next(automaton.start(), '{'), GrammarAutomaton::kDead);
    EXPECT_EQ(refusal(R"({"$ref": "#"})"), "json_schema: #: no text that ends fits it");
    EXPECT_EQ(refusal(R"({"properties": {"a": {"$ref": "#"}}, "required": ["a"]})"),
              "json_schema: #: no text that ends fits it");
    EXPECT_EQ(refusal(R"({"items": {"$ref": "#"}, "minItems": 1})"),
              "json_schema: #: no text that ends fits it");
    const std::string endless =
        R"({"properties": {"x": {"$ref": "#/$defs/e"}}, "required": ["x"]})";
    const auto with_it = [&](const std::string& rest) {
        return R"({"$defs": {"e": )" + endless + "}, " + rest + "}";
    };
    EXPECT_EQ(refusal(with_it(R"("properties": {"a": {"$ref": "#/$defs/e"}})")),
              "json_schema: the property \"a\" has no text that ends");
    EXPECT_EQ(refusal(with_it(R"("items": {"$ref": "#/$defs/e"})")),
              "json_schema: the elements of an array have no text that ends");
    // What may be left out may refer back.
    EXPECT_EQ(refusal(R"({"properties": {"a": {"$ref": "#"}}})"), "");
    EXPECT_EQ(refusal(R"({"items": {"$ref": "#"}})"), "");
}

TEST(SchemaProgram, ValuesThatAreListedAreOfTheType) {
    const auto allows_text = [](const char* schema, const char* text) {
        return allows(schema_program(schema).value(), text);
    };
    constexpr const char* kStrings = R"({"type": "string", "enum": ["a", null, 1]})";
    EXPECT_TRUE(allows_text(kStrings, "\"a\""));
    EXPECT_FALSE(allows_text(kStrings, "null"));
    constexpr const char* kIntegers =
        R"({"type": ["integer", "null"], "enum": [1, 2.5, 3.0, null]})";
    EXPECT_TRUE(allows_text(kIntegers, "1"));
    EXPECT_TRUE(allows_text(kIntegers, "3.0"));
    EXPECT_TRUE(allows_text(kIntegers, "null"));
    EXPECT_FALSE(allows_text(kIntegers, "2.5"));
}

}  // namespace
}  // namespace afd::model
