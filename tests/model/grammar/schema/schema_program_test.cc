// SPDX-License-Identifier: Apache-2.0
//
// Schemas as programs: what they allow, what is written under their masks, what is refused.
#include "model/grammar/schema/schema_program.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "model/grammar/schema/schema_reader.h"
#include "tests/model/grammar/grammar_texts.h"
#include "tests/model/grammar/schema/schema_validator.h"

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

// Goal: of values that begin alike, or of which one is the beginning of another, or that are named
// twice, each may come and nothing between them. Oracle: the list.
TEST(SchemaProgram, ValuesThatAreListedMayBeginAlike) {
    const auto program = schema_program(
                             R"({"enum": ["", "a", "ab", "abcd", "b", "ab", 1, 12, 1.5, -1, true,
                                 {"a": 1}, [], "é", "è"]})")
                             .value();
    for (const char* text : {R"("")",
                             R"("a")",
                             R"("ab")",
                             R"("abcd")",
                             R"("b")",
                             "1",
                             "12",
                             "1.5",
                             "-1",
                             "true",
                             R"({"a":1})",
                             "[]",
                             R"("é")",
                             R"("è")"}) {
        EXPECT_TRUE(allows(program, text)) << text;
    }
    for (const char* text : {R"("abc")",
                             R"("ba")",
                             R"("a)",
                             "123",
                             "1.",
                             "-",
                             "-12",
                             "tru",
                             "{}",
                             R"("e")",
                             "",
                             R"("bcd")"}) {
        EXPECT_FALSE(allows(program, text)) << text;
    }
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
