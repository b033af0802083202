// SPDX-License-Identifier: Apache-2.0
#include "model/chat/template/typescript_tools.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "model/chat/message/chat_json.h"
#include "model/json/ordered_json.h"
#include "model/unicode/utf8.h"
#include "proto/failure.h"

namespace afd::model {
namespace {

using TypeJson = nlohmann::ordered_json;

// Lines of the published template that begin with these blanks put them into the text, too.
constexpr std::string_view kPropertyIndent = "\n                ";
constexpr std::string_view kDefaultIndent = "                    ";

// A member that Jinja would take as true; null: there is none.
const TypeJson* member(const TypeJson& json, const char* key) {
    if (!json.is_object()) return nullptr;
    const auto at = json.find(key);
    if (at == json.end() || at->is_null() || *at == false || *at == 0 || *at == "") return nullptr;
    const bool is_nested = at->is_object() || at->is_array();
    return is_nested && at->empty() ? nullptr : &*at;
}

bool has_type(const TypeJson& json, std::string_view name) {
    const TypeJson* type = member(json, "type");
    return type != nullptr && *type == name;
}

bool is_required(const TypeJson& schema, const std::string& name) {
    const TypeJson* required = member(schema, "required");
    return required != nullptr && required->is_array() &&
           std::find(required->begin(), required->end(), TypeJson(name)) != required->end();
}

std::string joined(const TypeJson& list, std::string_view separator) {
    std::string text;
    for (const TypeJson& one : list) {
        if (&one != &list.front()) text += separator;
        text += python_text(one);
    }
    return text;
}

std::string type_of(const TypeJson& schema);

std::string array_type(const TypeJson& schema) {
    constexpr size_t kCharactersMax = 50;
    std::string text = "any";
    if (const TypeJson* items = member(schema, "items")) {
        const std::string inner = type_of(*items);
        const bool is_string = has_type(*items, "string");
        const bool is_any = inner == "object | object" || num_characters(inner) > kCharactersMax;
        text = is_string ? "string" : is_any ? "any" : inner;
    }
    return text + (member(schema, "nullable") ? "[] | null" : "[]");
}

std::string alternatives(const TypeJson& list) {
    std::string text;
    for (const TypeJson& one : list) {
        if (&one != &list.front()) text += " | \n";
        text += type_of(one);
        if (const TypeJson* description = member(one, "description")) {
            text += "// " + python_text(*description);
        }
        const auto value = one.find("default");
        if (one.is_object() && value != one.end()) {
            text.append(kDefaultIndent).append("// default: " + spaced_text(*value));
        }
    }
    return text;
}

std::string string_type(const TypeJson& schema) {
    const TypeJson* values = member(schema, "enum");
    if (values != nullptr && values->is_array()) return "\"" + joined(*values, "\" | \"") + "\"";
    return member(schema, "nullable") ? "string | null" : "string";
}

std::string object_type(const TypeJson& schema) {
    const TypeJson* properties = member(schema, "properties");
    if (properties == nullptr || !properties->is_object()) return "object";
    std::string text = "{\n";
    bool is_first = true;
    for (const auto& [name, property] : properties->items()) {
        if (!is_first) text += ", ";
        is_first = false;
        text += name + (is_required(schema, name) ? ": " : "?: ");
        text.append(kPropertyIndent).append(type_of(property));
    }
    return text + "}";
}

std::string type_of(const TypeJson& schema) {
    if (has_type(schema, "array")) return array_type(schema);
    const TypeJson* type = member(schema, "type");
    if (type != nullptr && type->is_array()) return joined(*type, " | ");
    const TypeJson* one_of = member(schema, "oneOf");
    if (one_of != nullptr && one_of->is_array()) return alternatives(*one_of);
    if (has_type(schema, "string")) return string_type(schema);
    if (has_type(schema, "number") || has_type(schema, "integer")) return "number";
    if (has_type(schema, "boolean")) return "boolean";
    return has_type(schema, "object") ? object_type(schema) : "any";
}

std::string parameter_line(const std::string& name, const TypeJson& schema, bool is_needed) {
    std::string text;
    if (const TypeJson* description = member(schema, "description")) {
        text += "// " + python_text(*description) + "\n";
    }
    text += name + (is_needed ? ": " : "?: ") + type_of(schema);
    const auto value = schema.find("default");
    if (schema.is_object() && value != schema.end()) {
        const bool has_enum = member(schema, "enum") != nullptr;
        const bool is_bare = has_enum || member(schema, "oneOf") != nullptr;
        text += has_enum || !is_bare ? ", // default: " : "// default: ";
        text += is_bare ? python_text(*value) : spaced_text(*value);
    }
    return text + ",\n";
}

std::string function_type(const TypeJson& function) {
    std::string text;
    if (const TypeJson* description = member(function, "description")) {
        text += "// " + python_text(*description) + "\n";
    }
    text += "type " + function["name"].get<std::string>() + " = ";
    const TypeJson* parameters = member(function, "parameters");
    const TypeJson* properties = parameters ? member(*parameters, "properties") : nullptr;
    if (properties == nullptr || !properties->is_object()) return text + "() => any;\n\n";
    text += "(_: {\n";
    for (const auto& [name, schema] : properties->items()) {
        text += parameter_line(name, schema, is_required(*parameters, name));
    }
    return text + "}) => any;\n\n";
}

}  // namespace

Result<std::string> typescript_namespace(const std::vector<std::string>& tools) {
    std::string text = "## functions\n\nnamespace functions {\n\n";
    for (size_t i = 0; i < tools.size(); ++i) {
        const std::string place = fmt::format("tools[{}]", i);
        AFD_ASSIGN(const TypeJson function, function_json(tools[i], place));
        text += function_type(function);
    }
    return text + "} // namespace functions";
}

}  // namespace afd::model
