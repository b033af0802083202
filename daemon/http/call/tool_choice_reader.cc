// SPDX-License-Identifier: Apache-2.0
#include "daemon/http/call/tool_choice_reader.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "daemon/http/call/response_format_reader.h"
#include "model/chat/call/call_form.h"
#include "model/grammar/response_program.h"
#include "model/json/ordered_json.h"
#include "model/unicode/utf8.h"

namespace afd::daemon {
namespace {

using OrderedJson = nlohmann::ordered_json;

// Of arguments only objects can be meant, so what does not say what it is is one. What leads to
// other schemas says it by them: a grammar takes no type beside that, and looks whether all are
// objects.
void name_objects(OrderedJson& schema) {
    const auto has = [&](auto... keys) { return (schema.contains(keys) || ...); };
    if (!has("$ref", "anyOf", "oneOf", "allOf")) {
        if (!has("type", "const", "enum")) schema["type"] = "object";
        return;
    }
    if (schema.value("type", OrderedJson()) == "object") schema.erase("type");
    for (const char* key : {"anyOf", "oneOf", "allOf"}) {
        const auto choices = schema.find(key);
        if (choices == schema.end() || !choices->is_array()) continue;
        for (OrderedJson& choice : *choices) {
            if (choice.is_object()) name_objects(choice);
        }
    }
}

// The schema of a tool's arguments, which are an object whether it says so or not; empty: there are
// none, as OpenAI reads a function without parameters.
// Errors: 400.
ApiResult<std::string> parameters_of(const OrderedJson& function, const std::string& path) {
    const auto found = function.find("parameters");
    if (found == function.end() || found->is_null() || *found == OrderedJson::object()) {
        return std::string();
    }
    OrderedJson schema = *found;
    if (!schema.is_object() || schema.value("type", OrderedJson("object")) != "object") {
        return bad_field(path, path + " must be a JSON Schema of an object");
    }
    name_objects(schema);
    return model::compact_text(schema);
}

void add_parts(const std::vector<model::CallPart>& parts,
               google::protobuf::RepeatedPtrField<ToolCallFormat::Part>& wire) {
    for (const model::CallPart& part : parts) {
        ToolCallFormat::Part& added = *wire.Add();
        added.set_text(std::string(part.text));
        added.set_is_mark(part.is_mark);
    }
}

std::optional<ApiError> add_tools(const ToolChoice& choice,
                                  const OrderedJson& tools,
                                  ToolCallFormat& format,
                                  std::vector<std::string>& ignored) {
    for (size_t i = 0; i < tools.size(); ++i) {
        const OrderedJson& function = tools[i]["function"];
        const std::string name = function.value("name", "");
        if (!choice.name.empty() && name != choice.name) continue;
        ToolCallFormat::Tool& tool = *format.add_tools();
        tool.set_name(name);
        const std::string path = fmt::format("tools[{}].function.parameters", i);
        ApiResult<std::string> parameters = parameters_of(function, path);
        if (auto* error = std::get_if<ApiError>(&parameters)) return std::move(*error);
        tool.set_parameters(std::move(std::get<std::string>(parameters)));
        note_ignored(tool.parameters(), path, ignored);
    }
    if (!format.tools().empty()) return std::nullopt;
    return bad_field("tool_choice",
                     choice.name.empty()
                         ? "tool_choice = required: there are no tools"
                         : fmt::format("tool_choice names '{}', which is none of the tools",
                                       model::start_of(choice.name, 100)));
}

}  // namespace

ToolChoice read_tool_choice(FieldReader& fields) {
    const nlohmann::json* value = fields.any("tool_choice");
    if (value == nullptr || *value == "auto") return {};
    if (*value == "none") return {.kind = ToolChoice::Kind::kNone};
    if (*value == "required") return {.kind = ToolChoice::Kind::kRequired};
    ToolChoice choice{.kind = ToolChoice::Kind::kRequired};
    if (value->is_object()) {
        FieldReader one(*value, "tool_choice.");
        const nlohmann::json* function = one.any("function");
        if (one.text("type") == "function" && function != nullptr) {
            FieldReader inner(*function, "tool_choice.function.");
            choice.name = inner.text("name").value_or("");
        }
    }
    if (choice.name.empty()) {
        fields.fail(unsupported_field("tool_choice",
                                      "tool_choice must be auto, none, required or {\"type\": "
                                      "\"function\", \"function\": {\"name\": ...}}"));
    }
    return choice;
}

std::optional<ApiError> force_call(const ToolChoice& choice,
                                   std::string_view body,
                                   const model::ChatTemplate& chat,
                                   model::ToolSyntax syntax,
                                   SamplingSettings& sampling,
                                   std::vector<std::string>& ignored) {
    // With the members of each schema in their order, which is that of the arguments.
    const Result<OrderedJson> read = model::parse_ordered_member(body, "tools", "tools");
    if (!read.ok()) return bad_field("tools", read.error().message);
    const OrderedJson& json = read.value();
    ToolCallFormat& format = *sampling.mutable_response_format()->mutable_tool_call();
    const OrderedJson none = OrderedJson::array();
    const auto tools = json.find("tools");
    const bool has_tools = tools != json.end() && tools->is_array();
    if (auto error = add_tools(choice, has_tools ? *tools : none, format, ignored)) return error;
    if (syntax == model::ToolSyntax::kNone) {
        return unsupported_field("tool_choice", "tool_choice: the model's template has no calls");
    }
    const std::optional<model::CallForm> form = model::call_form(syntax);
    if (!form) {
        return unsupported_field(
            "tool_choice",
            fmt::format("tool_choice: the model's template ({}) has calls of a form that cannot be "
                        "forced; leave the choice to the model, with auto",
                        chat.name()));
    }
    add_parts(form->before, *format.mutable_before());
    add_parts(form->between, *format.mutable_between());
    add_parts(form->behind, *format.mutable_behind());
    // Here and not only in the gateway: what is wrong is in what the client calls tools.
    const auto program = model::response_program(sampling.response_format());
    if (program.ok()) return std::nullopt;
    return unsupported_field("tools", "tools: " + program.error().message);
}

void note_strict_tools(FieldReader& fields, std::vector<std::string>& ignored) {
    const nlohmann::json* tools = fields.any("tools");
    for (size_t i = 0; tools != nullptr && i < tools->size(); ++i) {
        const nlohmann::json& function = (*tools)[i]["function"];
        if (function.value("strict", nlohmann::json()) != true) continue;
        ignored.push_back(fmt::format("tools[{}].function.strict", i));
    }
}

}  // namespace afd::daemon
