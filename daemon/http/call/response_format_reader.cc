// SPDX-License-Identifier: Apache-2.0
#include "daemon/http/call/response_format_reader.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "model/grammar/response_program.h"
#include "model/grammar/schema/schema_reader.h"
#include "model/json/ordered_json.h"

namespace afd::daemon {
namespace {

constexpr const char* kField = "response_format";

// The same path through the body again, as it was written: FieldReader's values have their members
// by the alphabet. `outer`: response_format, or, where it `is_within` that, its json_schema.
void take_schema(FieldReader& outer,
                 bool is_within,
                 std::string_view body,
                 SamplingSettings& sampling,
                 std::vector<std::string>& ignored) {
    const auto ordered = model::parse_ordered_member(body, kField, kField);
    if (!ordered.ok()) {
        outer.fail(bad_field(kField, ordered.error().message));
        return;
    }
    const nlohmann::ordered_json& format = ordered.value().at(kField);
    const std::string text = model::compact_text(is_within ? format.at("json_schema").at("schema")
                                                           : format.at("schema"));
    note_ignored(text, outer.path_of("schema"), ignored);
    sampling.mutable_response_format()->set_json_schema(text);
}

void read_schema(FieldReader& format,
                 std::string_view body,
                 SamplingSettings& sampling,
                 std::vector<std::string>& ignored) {
    const nlohmann::json* described = format.any("json_schema");
    if (described == nullptr) {
        format.fail(bad_field(kField,
                              "response_format of type json_schema has no json_schema: it must be "
                              "{\"name\": ..., \"schema\": {...}}"));
        return;
    }
    FieldReader inner(*described, "response_format.json_schema.");
    for (const char* name : {"name", "description"}) inner.text(name);
    inner.boolean("strict");
    if (inner.any("schema") == nullptr) {
        inner.fail(bad_field(kField,
                             "response_format.json_schema has no schema: it must be a JSON "
                             "Schema"));
    }
    if (!inner.error()) take_schema(inner, true, body, sampling, ignored);
    if (inner.error()) format.fail(*inner.error());
    format.add_unknown(inner);
}

}  // namespace

void note_ignored(const std::string& schema,
                  const std::string& path,
                  std::vector<std::string>& ignored) {
    const Result<model::JsonSchema> read = model::read_json_schema(schema);
    if (!read.ok()) return;
    for (const std::string& place : read.value().ignored) ignored.push_back(path + place);
}

void read_response_format(FieldReader& fields,
                          std::string_view body,
                          SamplingSettings& sampling,
                          std::vector<std::string>& ignored) {
    const nlohmann::json* value = fields.any(kField);
    if (value == nullptr) return;
    FieldReader format(*value, "response_format.");
    const std::optional<std::string> type = format.text("type");
    // As llama-server has it, this type may come with a schema.
    if (type == "json_object" && format.any("schema") != nullptr) {
        take_schema(format, false, body, sampling, ignored);
    } else if (type == "json_object") {
        sampling.mutable_response_format()->set_json_object(true);
    } else if (type == "json_schema") {
        read_schema(format, body, sampling, ignored);
    } else if (!format.error() && type != "text") {
        format.fail(unsupported_field(
            kField,
            fmt::format("response_format.type = '{}': must be text, json_object or json_schema",
                        type.value_or(""))));
    }
    if (format.error()) fields.fail(*format.error());
    fields.add_unknown(format);
}

std::optional<ApiError> judge_response_format(const SamplingSettings& sampling) {
    if (!sampling.has_response_format()) return std::nullopt;
    const auto program = model::response_program(sampling.response_format());
    if (program.ok()) return std::nullopt;
    client::Error error;
    error.set_code(static_cast<uint32_t>(program.error().code));
    error.set_message(program.error().message);
    return api_error(error);
}

}  // namespace afd::daemon
