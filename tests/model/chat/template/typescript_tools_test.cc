// SPDX-License-Identifier: Apache-2.0
//
// Oracle: what the published template of gpt-oss makes of these schemas in Jinja.
#include "model/chat/template/typescript_tools.h"

#include <gtest/gtest.h>

namespace afd::model {
namespace {

// What stands behind "a: ".
std::string type_of(const std::string& schema) {
    const auto text =
        typescript_namespace({R"({"function":{"name":"f","parameters":{"properties":{"a":)" +
                              schema + R"(},"required":["a"]}}})"});
    EXPECT_TRUE(text.ok()) << text.error().message;
    const std::string before = "## functions\n\nnamespace functions {\n\ntype f = (_: {\na: ";
    const std::string behind = ",\n}) => any;\n\n} // namespace functions";
    EXPECT_TRUE(text.value().starts_with(before) && text.value().ends_with(behind)) << schema;
    return text.value().substr(before.size(), text.value().size() - before.size() - behind.size());
}

TEST(TypeScriptTools, SchemasBecomeTypes) {
    EXPECT_EQ(type_of(R"({"type":"string"})"), "string");
    EXPECT_EQ(type_of(R"({"type":"string","nullable":true})"), "string | null");
    EXPECT_EQ(type_of(R"({"type":"string","enum":["a","b"]})"), "\"a\" | \"b\"");
    EXPECT_EQ(type_of(R"({"type":"string","enum":["a","b"],"default":"a"})"),
              "\"a\" | \"b\", // default: a");
    EXPECT_EQ(type_of(R"({"type":"string","default":"x"})"), "string, // default: \"x\"");
    EXPECT_EQ(type_of(R"({"type":"integer"})"), "number");
    EXPECT_EQ(type_of(R"({"type":"number","default":2.5})"), "number, // default: 2.5");
    EXPECT_EQ(type_of(R"({"type":"boolean","default":false})"), "boolean, // default: false");
    EXPECT_EQ(type_of(R"({"type":"array"})"), "any[]");
    EXPECT_EQ(type_of(R"({"type":"array","nullable":true})"), "any[] | null");
    EXPECT_EQ(type_of(R"({"type":"array","items":{"type":"string","enum":["a"]}})"), "string[]");
    EXPECT_EQ(type_of(R"({"type":"array","items":{"type":"integer"},"nullable":true})"),
              "number[] | null");
    EXPECT_EQ(type_of(R"({"type":"array","items":{"type":"array","items":{"type":"boolean"}}})"),
              "boolean[][]");
    EXPECT_EQ(type_of(R"({"type":"array","items":{"type":"object","properties":)"
                      R"({"aaaaaaaaaaaaaaaaaaaaaaaaaa":{"type":"string"}}}})"),
              "any[]");
    EXPECT_EQ(type_of(R"({"type":"array","items":{"type":["object","object"]}})"), "any[]");
    EXPECT_EQ(type_of(R"({"type":"array","items":{}})"), "any[]");
    EXPECT_EQ(type_of(R"({"type":["string","null"]})"), "string | null");
    EXPECT_EQ(type_of(R"({"type":["integer"]})"), "integer");
    EXPECT_EQ(type_of(R"({"type":[]})"), "any");
    EXPECT_EQ(type_of(R"({"type":"object"})"), "object");
    EXPECT_EQ(type_of(R"({"type":"object","properties":{"x":{"type":"number"},)"
                      R"("y":{"type":"array","items":{"type":"string"}}},"required":["y"]})"),
              "{\nx?: \n                number, y: \n                string[]}");
    EXPECT_EQ(
        type_of(
            R"({"oneOf":[{"type":"string","description":"d","default":"v"},{"type":"object"}]})"),
        "string// d                    // default: \"v\" | \nobject");
    EXPECT_EQ(type_of(R"({"oneOf":[{"type":"string"}],"default":"q"})"), "string// default: q");
    EXPECT_EQ(type_of(R"({"anyOf":[{"type":"string"}]})"), "any");
    EXPECT_EQ(type_of(R"({})"), "any");
    EXPECT_EQ(type_of(R"({"description":"","default":null})"), "any, // default: null");
}

TEST(TypeScriptTools, FunctionsMayTakeNothing) {
    for (const char* parameters :
         {"", R"(,"parameters":null)", R"(,"parameters":{"properties":{}})"}) {
        EXPECT_EQ(typescript_namespace({R"({"function":{"name":"f","description":"Does it.")" +
                                        std::string(parameters) + "}}"})
                      .value(),
                  "## functions\n\nnamespace functions {\n\n// Does it.\ntype f = () => any;\n\n"
                  "} // namespace functions");
    }
}

TEST(TypeScriptTools, WhatIsNoFunctionIsRefused) {
    EXPECT_EQ(typescript_namespace({R"({"function":{"name":"f"}})", "{}"}).error().message,
              "tools[1] has no object \"function\"");
}

}  // namespace
}  // namespace afd::model
