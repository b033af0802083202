// SPDX-License-Identifier: Apache-2.0
#include "model/chat/call/parameter_types.h"

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

// A value must do for all that a schema says: each keyword, and each schema of an allOf.
TEST(ParameterTypes, WhatASchemaSaysTogetherAValueMustBe) {
    const std::string rest = R"(,"$defs":{"Name":{"type":"string"},"Size":{"type":"integer"}})";
    const auto kinds = [&](const std::string& schema) {
        return types_of(schema, rest)->kinds().at("f").listed.at("a");
    };
    for (const char* schema :
         {R"({"allOf":[{"$ref":"#/$defs/Name"},{"description":"A name."}]})",
          R"({"allOf":[{"type":["string","integer"]},{"type":["string","null"]}]})",
          R"({"allOf":[{"$ref":"#/$defs/Name"}],"anyOf":[{"minLength":1},{"type":"null"}]})",
          R"({"allOf":[{"type":"string"}],"enum":["1",2]})",
          R"({"$ref":"#/$defs/Name","description":"A name.","enum":["1",2]})",
          R"({"type":["string","null"],"allOf":[{"$ref":"#/$defs/Name"}]})",
          R"({"enum":["1",2],"const":"1"})",
          R"({"type":"string","enum":[true,false]})",
          R"({"type":"string","enum":[1],"const":"1"})",
          R"({"anyOf":[{"type":"string"},{"type":"null"}],"oneOf":[{"minLength":1}],)"
          R"("allOf":[{"type":["string","number"]}]})"}) {
        EXPECT_EQ(kinds(schema), uint32_t{ParameterTypes::kString}) << schema;
    }
    EXPECT_EQ(kinds(R"({"allOf":[{"$ref":"#/$defs/Size"}],"nullable":true})"),
              uint32_t{ParameterTypes::kNumber | ParameterTypes::kNull});
    // A type that is named counts more than the values beside it.
    for (const char* schema : {R"({"type":["string","null"],"enum":["celsius","fahrenheit"]})",
                               R"({"type":["string","null"],"const":"celsius"})",
                               R"({"type":["string","null"],"enum":[true,false]})"}) {
        EXPECT_EQ(kinds(schema), uint32_t{ParameterTypes::kString | ParameterTypes::kNull})
            << schema;
    }
    EXPECT_EQ(kinds(R"({"type":["string","number","null"],"enum":[1,2]})"),
              uint32_t{ParameterTypes::kNumber | ParameterTypes::kNull});
    EXPECT_EQ(kinds(R"({"type":"object","anyOf":[{"required":["b"]},{"required":["c"]}]})"),
              uint32_t{ParameterTypes::kObject});
    // No value would do, or nothing is said.
    for (const char* schema : {R"({"allOf":[{"type":"string"},{"type":"integer"}]})",
                               R"({"type":"string","allOf":[{"$ref":"#/$defs/Size"}]})",
                               R"({"allOf":[{"description":"A name."},{}]})",
                               R"({"allOf":[]})",
                               R"({"allOf":5})"}) {
        EXPECT_EQ(kinds(schema), uint32_t{ParameterTypes::kAny}) << schema;
    }
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
            return types->kinds().at("f").listed.at("a");
        };
        EXPECT_EQ(kinds("Name"), uint32_t{ParameterTypes::kString});
        EXPECT_EQ(kinds("Loop"), uint32_t{ParameterTypes::kAny});
        EXPECT_EQ(kinds("Missing"), uint32_t{ParameterTypes::kAny});
    }
}

TEST(ParameterTypes, ReferencesLeadWhereThoseOfSchemasLead) {
    const std::string rest =
        R"(,"$defs":{"Box<str>":{"type":"string"},"a/b":{"anyOf":[{},{"type":"null"}]}})";
    const auto kinds = [&](const std::string& reference) {
        return types_of(R"({"$ref":")" + reference + R"("})", rest)->kinds().at("f").listed.at("a");
    };
    EXPECT_EQ(kinds("#/$defs/Box%3Cstr%3E"), uint32_t{ParameterTypes::kString});
    EXPECT_EQ(kinds("#/$defs/a~1b/anyOf/1"), uint32_t{ParameterTypes::kNull});
    EXPECT_EQ(kinds("/$defs/Box%3Cstr%3E"), uint32_t{ParameterTypes::kAny});
    EXPECT_EQ(kinds("#"), uint32_t{ParameterTypes::kAny});
}

// Of a tool with these parameters.
uint32_t kinds_in(const std::string& parameters, const std::string& name) {
    const auto types =
        ParameterTypes::of({R"({"function":{"name":"f","parameters":)" + parameters + "}}"});
    if (!types->kinds().contains("f")) return ParameterTypes::kAny;
    const auto& [listed, others] = types->kinds().at("f");
    return listed.contains(name) ? listed.at(name) : others;
}

// Goal: what a tool takes is found wherever its schema lists it. Method: a table of parameters by
// itself, and behind what leads to it. Oracle: written by hand.
TEST(ParameterTypes, ParametersMayBeBehindReferencesAndAlternatives) {
    const std::string args = R"({"type":"object","properties":{"zip":{"type":"string"},)"
                             R"("size":{"$ref":"#/definitions/Size"},"any":{}}})";
    const std::string definitions =
        R"("definitions":{"Args":)" + args +
        R"(,"More":{"$ref":"#/definitions/Args"},"Size":{"type":"integer"}})";
    for (const std::string& place :
         {args.substr(1, args.size() - 2),
          std::string(R"("$ref":"#/definitions/Args")"),
          std::string(R"("$ref":"#/definitions/More")"),
          R"("allOf":[)" + args + "]",
          R"("anyOf":[)" + args + "]",
          R"("oneOf":[)" + args + R"(,{"type":"null"}])",
          std::string(R"("allOf":[{"required":["zip"]},)"
                      R"({"anyOf":[{"$ref":"#/definitions/More"}]}])")}) {
        const std::string parameters = "{" + place + "," + definitions + "}";
        EXPECT_EQ(kinds_in(parameters, "zip"), uint32_t{ParameterTypes::kString}) << place;
        EXPECT_EQ(kinds_in(parameters, "size"), uint32_t{ParameterTypes::kNumber}) << place;
        EXPECT_EQ(kinds_in(parameters, "any"), uint32_t{ParameterTypes::kAny}) << place;
        EXPECT_EQ(kinds_in(parameters, "other"), uint32_t{ParameterTypes::kAny}) << place;
    }
    const auto types = ParameterTypes::of({R"({"function":{"name":"f","parameters":)"
                                           R"({"$ref":"#/definitions/Args",)" +
                                           definitions + "}}}"});
    EXPECT_EQ(types->json_of("f", "zip", "10115"), "\"10115\"");
    EXPECT_EQ(types->json_of("f", "size", "10115"), "10115");
    EXPECT_EQ(kinds_in(R"({"$ref":"#"})", "a"), uint32_t{ParameterTypes::kAny});
    EXPECT_EQ(kinds_in(R"({"anyOf":5,"allOf":{}})", "a"), uint32_t{ParameterTypes::kAny});
}

// What several schemas say of one parameter.
TEST(ParameterTypes, ParametersMeetAllAndOneOfTheAlternatives) {
    const std::string text = R"({"properties":{"a":{"type":"string"}}})";
    const std::string either = R"({"properties":{"a":{"type":["string","integer"]}}})";
    const std::string number = R"({"properties":{"a":{"type":"integer"}}})";
    const std::string other = R"({"properties":{"b":{"type":"integer"}}})";
    const std::string strings = R"({"additionalProperties":{"type":"string"}})";
    const auto kinds =
        [](const std::string& key, const std::string& some, const std::string& more) {
            return kinds_in("{\"" + key + "\":[" + some + "," + more + "]}", "a");
        };
    EXPECT_EQ(kinds("allOf", either, text), uint32_t{ParameterTypes::kString});
    EXPECT_EQ(kinds("allOf", either, strings), uint32_t{ParameterTypes::kString});
    EXPECT_EQ(kinds("allOf", strings, either), uint32_t{ParameterTypes::kString});
    EXPECT_EQ(kinds("allOf", number, text), uint32_t{ParameterTypes::kAny});
    for (const std::string key : {"anyOf", "oneOf"}) {
        const uint32_t both = ParameterTypes::kString | ParameterTypes::kNumber;
        EXPECT_EQ(kinds(key, text, number), both);
        EXPECT_EQ(kinds(key, number, strings), both);
        EXPECT_EQ(kinds(key, strings, number), both);
        // Where it is not listed it is not meant.
        EXPECT_EQ(kinds(key, text, other), uint32_t{ParameterTypes::kString});
        EXPECT_EQ(kinds(key, other, text), uint32_t{ParameterTypes::kString});
        EXPECT_EQ(kinds(key, strings, other), uint32_t{ParameterTypes::kAny});
    }
    EXPECT_EQ(kinds_in(R"({"properties":{"a":{"type":"integer"}},"allOf":[)" + strings + "]}", "b"),
              uint32_t{ParameterTypes::kString});
    EXPECT_EQ(kinds_in(strings, "a"), uint32_t{ParameterTypes::kString});
    EXPECT_EQ(kinds_in(R"({"additionalProperties":false})", "a"), uint32_t{ParameterTypes::kAny});
}

// Goal: parameters that refer to themselves cost what one may look at. Method: 20 of themselves,
// beside 500 names. That they are read at all is the test.
TEST(ParameterTypes, ParametersOfParametersAreReadAtOnce) {
    std::string properties;
    for (int i = 0; i < 500; ++i) properties += "\"" + std::to_string(i) + "\":{},";
    for (const std::string key : {"anyOf", "oneOf", "allOf"}) {
        std::string parts = R"({"$ref":"#"})";
        for (int i = 1; i < 20; ++i) parts += R"(,{"$ref":"#"})";
        const std::string parameters =
            R"({"additionalProperties":{"type":"string"},"properties":{)" + properties +
            R"("a":{"type":"integer"}},")" + key + "\":[" + parts + "]}";
        EXPECT_EQ(kinds_in(parameters, "a"), uint32_t{ParameterTypes::kNumber});
    }
}

// `{key: [...]}` of as many references to `name`.
std::string choice_of(const std::string& key, size_t num_choices, const std::string& name) {
    std::string choices;
    for (size_t i = 0; i < num_choices; ++i) {
        choices += (i == 0 ? "" : ",") + std::string(R"({"$ref":"#/$defs/)") + name + R"("})";
    }
    return "{\"" + key + "\":[" + choices + "]}";
}

// Of a parameter that 7 choices lead to a string, each of as many of the next.
uint32_t kinds_of_chain(const std::string& key, size_t num_choices) {
    std::string all;
    for (int i = 0; i < 7; ++i) {
        const std::string next = "A" + std::to_string(i + 1);
        all += "\"A" + std::to_string(i) + "\":" + choice_of(key, num_choices, next) + ",";
    }
    const std::string rest = ",\"$defs\":{" + all + R"("A7":{"type":"string"}})";
    return types_of(R"({"$ref":"#/$defs/A0"})", rest)->kinds().at("f").listed.at("a");
}

// Goal: choices that refer to each other cost what one may look at, not their product. Method: 20
// of themselves, 16 deep; and 30 to the power of 7, which all are strings. That they are read at
// all is the test: one at a time they take years.
TEST(ParameterTypes, AlternativesOfAlternativesAreReadAtOnce) {
    for (const std::string key : {"anyOf", "oneOf", "allOf"}) {
        const std::string itself = R"(,"$defs":{"A":)" + choice_of(key, 20, "A") + "}";
        EXPECT_EQ(types_of(R"({"$ref":"#/$defs/A"})", itself)->kinds().at("f").listed.at("a"),
                  uint32_t{ParameterTypes::kAny});
        EXPECT_EQ(kinds_of_chain(key, 3), uint32_t{ParameterTypes::kString});
        // What is beyond takes nothing from what all must be.
        EXPECT_EQ(
            kinds_of_chain(key, 30),
            key == "allOf" ? uint32_t{ParameterTypes::kString} : uint32_t{ParameterTypes::kAny});
    }
}

// Goal: what is too deep to be looked into is looked at, too. Method: parameters that are all of
// themselves several times. Oracle: nothing of what one may look at is left for the one behind.
TEST(ParameterTypes, ReferencesThatAreTooDeepCount) {
    for (const size_t num_parts : {5, 8'000}) {
        std::string all = R"({"$ref":"#"})";
        for (size_t i = 1; i < num_parts; ++i) all += R"(,{"$ref":"#"})";
        const auto types =
            types_of(R"({"$ref":"#"},"b":{"type":"string"})", R"(,"allOf":[)" + all + "]");
        EXPECT_EQ(types->kinds().at("f").listed.at("a"), uint32_t{ParameterTypes::kAny});
        EXPECT_EQ(types->kinds().at("f").listed.at("b"), uint32_t{ParameterTypes::kAny});
    }
}

// Goal: values count, too, or few looks were long ones. Method: an enum that is read once, and one
// that 500 alternatives lead to.
TEST(ParameterTypes, AlternativesOfOneLongEnumAreReadAtOnce) {
    std::string values = "1";
    for (int i = 0; i < 9'000; ++i) values += ",1";
    std::string rest =
        R"(,"$defs":{"A":)" + choice_of("anyOf", 500, "B") + R"(,"B":{"enum":[)" + values + "]}}";
    const auto types = types_of(R"({"$ref":"#/$defs/B"},"b":{"$ref":"#/$defs/A"})", rest);
    EXPECT_EQ(types->kinds().at("f").listed.at("a"), uint32_t{ParameterTypes::kNumber});
    EXPECT_EQ(types->kinds().at("f").listed.at("b"), uint32_t{ParameterTypes::kAny});
}

// Goal: what a request has of honest tools is read, and a small one costs no more than the largest
// of those. Method: 128 tools of 20 parameters; and choices that are looked at 20,000 times.
TEST(ParameterTypes, AllOfManyToolsIsReadAndLittleMore) {
    std::string properties;
    for (int i = 10; i < 30; ++i) {
        properties += (i == 10 ? "\"" : ",\"") + std::string("a_parameter_no") + std::to_string(i) +
                      R"(":{"type":"integer","description":"How many."})";
    }
    std::vector<std::string> tools;
    for (int i = 0; i < 128; ++i) {
        tools.push_back(R"({"function":{"name":"f)" + std::to_string(i) +
                        R"(","parameters":{"type":"object","properties":{)" + properties + "}}}}");
    }
    EXPECT_EQ(ParameterTypes::of(tools)->kinds().at("f127").listed.at("a_parameter_no29"),
              uint32_t{ParameterTypes::kNumber});
    EXPECT_EQ(kinds_of_chain("anyOf", 4), uint32_t{ParameterTypes::kAny});
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
        EXPECT_EQ(types_of(schema)->kinds().at("f").listed.at("a"), uint32_t{ParameterTypes::kAny})
            << schema;
    }
}

}  // namespace
}  // namespace afd::model
