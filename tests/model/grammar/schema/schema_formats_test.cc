// SPDX-License-Identifier: Apache-2.0
//
// Formats of strings in schemas: those that texts are held to, and those that are told.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "model/grammar/schema/schema_program.h"
#include "model/grammar/schema/schema_reader.h"
#include "tests/model/grammar/grammar_texts.h"
#include "tests/model/grammar/schema/schema_validator.h"

namespace afd::model {
namespace {

using Json = nlohmann::json;

// Goal: each format that is held to takes what is of it, and nothing else. Oracle: the documents
// that define them (RFC 3339, 4122 and 2673).
TEST(SchemaFormats, StringsAreHeldToTheirFormats) {
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

TEST(SchemaFormats, TellsTheFormatsThatNothingIsHeldTo) {
    const auto ignored = [](const char* schema) {
        return read_json_schema(schema).value().ignored;
    };
    EXPECT_THAT(ignored(R"({"type": "string", "format": "date"})"), testing::IsEmpty());
    // Each has the path to it, and the answer says no more than some of them.
    std::string many = R"({"prefixItems": [{"format": "x"})";
    for (int i = 1; i < 1000; ++i) many += R"(, {"format": "x"})";
    EXPECT_THAT(ignored((many + "]}").c_str()), testing::SizeIs(JsonSchema::kIgnoredMax));
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

}  // namespace
}  // namespace afd::model
