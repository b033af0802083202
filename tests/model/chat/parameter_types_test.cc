// SPDX-License-Identifier: Apache-2.0
#include "model/chat/parameter_types.h"

#include <gtest/gtest.h>

namespace afd::model {
namespace {

std::shared_ptr<const ParameterTypes> types_of(const std::string& schema,
                                               const std::string& rest = "") {
    return ParameterTypes::of({R"({"function":{"name":"f","parameters":{"properties":{"a":)" +
                               schema + "}" + rest + "}}}"});
}

std::string json_of(const std::string& schema, const std::string& text) {
    return types_of(schema)->json_of("f", "a", text);
}

TEST(ParameterTypes, StringsStayText) {
    for (const char* schema : {R"({"type":"string"})",
                               R"({"enum":["1","2"]})",
                               R"({"const":"1"})",
                               R"({"anyOf":[{"type":"string"},{"enum":["x"]}]})"}) {
        EXPECT_EQ(json_of(schema, "1"), "\"1\"") << schema;
        EXPECT_EQ(json_of(schema, "null"), "\"null\"") << schema;
        EXPECT_EQ(json_of(schema, " {\"a\": 1}\n"), "\" {\\\"a\\\": 1}\\n\"") << schema;
    }
}

TEST(ParameterTypes, OtherValuesAreJsonAndStringsIfTheyAreNone) {
    for (const char* schema : {R"({"type":"integer"})",
                               R"({"type":"number"})",
                               R"({"type":"object"})",
                               R"({"type":"array"})",
                               R"({"type":"boolean"})"}) {
        EXPECT_EQ(json_of(schema, " 12345678901234567890123 "), "12345678901234567890123");
        EXPECT_EQ(json_of(schema, "[1, {\"b\": 2.50}]\n"), "[1, {\"b\": 2.50}]");
        EXPECT_EQ(json_of(schema, "null"), "null");
        EXPECT_EQ(json_of(schema, "None"), "null");
        EXPECT_EQ(json_of(schema, "True"), "true");
        EXPECT_EQ(json_of(schema, "False"), "false");
        EXPECT_EQ(json_of(schema, "five"), "\"five\"");
        EXPECT_EQ(json_of(schema, "{'a': 1}"), "\"{'a': 1}\"");
        EXPECT_EQ(json_of(schema, "007"), "\"007\"");
        EXPECT_EQ(json_of(schema, "\"x\""), "\"\\\"x\\\"\"");
    }
}

TEST(ParameterTypes, AmongSeveralAValueIsOfTheKindThatItLooksLike) {
    for (const char* schema : {R"({"type":["string","null"]})",
                               R"({"type":"string","nullable":true})",
                               R"({"anyOf":[{"type":"string"},{"type":"null"}]})",
                               R"({"enum":["a",null]})"}) {
        EXPECT_EQ(json_of(schema, "null"), "null") << schema;
        EXPECT_EQ(json_of(schema, "None"), "null") << schema;
        EXPECT_EQ(json_of(schema, "1"), "\"1\"") << schema;
        EXPECT_EQ(json_of(schema, "True"), "\"True\"") << schema;
    }
    const std::string either = R"({"oneOf":[{"type":"string"},{"type":"integer"}]})";
    EXPECT_EQ(json_of(either, "1"), "1");
    EXPECT_EQ(json_of(either, "[1]"), "\"[1]\"");
}

TEST(ParameterTypes, WhereTheSchemaSaysNothingAValueIsWhatItLooksLike) {
    const auto types = types_of("{}");
    for (const char* name : {"a", "unknown"}) {
        EXPECT_EQ(types->json_of("f", name, "1"), "1");
        EXPECT_EQ(types->json_of("f", name, "{\"a\": []}"), "{\"a\": []}");
        EXPECT_EQ(types->json_of("f", name, "\"x\""), "\"\\\"x\\\"\"");
        EXPECT_EQ(types->json_of("f", name, "None"), "\"None\"");
        EXPECT_EQ(types->json_of("f", name, "red"), "\"red\"");
    }
    EXPECT_EQ(types->json_of("g", "a", "true"), "true");
    EXPECT_EQ(ParameterTypes().json_of("f", "a", "é\x01"), "\"é\\u0001\"");
}

TEST(ParameterTypes, ReferencesLeadToDefinitions) {
    for (const char* place : {"$defs", "definitions"}) {
        const std::string rest = ",\"" + std::string(place) +
                                 R"(":{"Name":{"type":"string"},"Loop":{"$ref":"#/)" + place +
                                 R"(/Loop"}})";
        const auto kinds = [&](const std::string& name) {
            const auto types =
                types_of("{\"$ref\":\"#/" + std::string(place) + "/" + name + "\"}", rest);
            return types->kinds().at({"f", "a"});
        };
        EXPECT_EQ(kinds("Name"), uint32_t{ParameterTypes::kString});
        EXPECT_EQ(kinds("Loop"), uint32_t{ParameterTypes::kAny});
        EXPECT_EQ(kinds("Missing"), uint32_t{ParameterTypes::kAny});
    }
}

TEST(ParameterTypes, WhatIsNoSchemaSaysNothing) {
    for (const char* tool : {"{",
                             "[]",
                             "{}",
                             R"({"function":5})",
                             R"({"function":{"name":5,"parameters":{"properties":{"a":{}}}}})",
                             R"({"function":{"name":"f","parameters":{"properties":[]}}})"}) {
        EXPECT_TRUE(ParameterTypes::of({tool})->kinds().empty()) << tool;
    }
    for (const char* schema : {"true", "5", "null", "[]", R"({"type":5})", R"({"anyOf":5})"}) {
        EXPECT_EQ(types_of(schema)->kinds().at({"f", "a"}), uint32_t{ParameterTypes::kAny})
            << schema;
    }
}

}  // namespace
}  // namespace afd::model
