// SPDX-License-Identifier: Apache-2.0
#include "model/grammar/schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "model/grammar/schema_reference.h"
#include "model/json/ordered_json.h"
#include "model/unicode/utf8.h"
#include "proto/failure.h"

namespace afd::model {
namespace {

// Members are written in the order in which the schema has them.
using OrderedJson = nlohmann::ordered_json;
using Kind = Schema::Kind;

constexpr int kDepthMax = 64;  // Schemas within each other.
constexpr size_t kNameBytesMax = 256;
constexpr size_t kCountMax = 100'000;

constexpr std::array kKnown{"$defs",
                            "$ref",
                            "additionalProperties",
                            "anyOf",
                            "const",
                            "definitions",
                            "enum",
                            "items",
                            "maxItems",
                            "maxLength",
                            "minItems",
                            "minLength",
                            "prefixItems",
                            "properties",
                            "required",
                            "type"};
// Each says all of a schema; what stands beside it would be left out.
constexpr std::array kAlone{"$ref", "const", "enum", "anyOf"};
constexpr std::array kAnnotations{"$comment",
                                  "$id",
                                  "$schema",
                                  "default",
                                  "deprecated",
                                  "description",
                                  "examples",
                                  "format",
                                  "readOnly",
                                  "title",
                                  "writeOnly"};
constexpr std::array kTypes{std::pair{"null", Kind::kNull},
                            std::pair{"boolean", Kind::kBoolean},
                            std::pair{"integer", Kind::kInteger},
                            std::pair{"number", Kind::kNumber},
                            std::pair{"string", Kind::kString},
                            std::pair{"array", Kind::kArray},
                            std::pair{"object", Kind::kObject}};

template <typename Names>
bool is_in(const Names& names, std::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
}

// What a client wrote, as far as it fits a line.
std::string shown(const OrderedJson& value) {
    constexpr size_t kShown = 60;
    const std::string text = compact_text(value);
    const std::string_view start = start_of(text, kShown);
    return std::string(start).append(start.size() < text.size() ? "..." : "");
}

// Whether `other` may stand beside `key`, which says all: where schemas are kept, and the type of
// values that are listed anyhow.
bool may_stand_beside(std::string_view key, std::string_view other) {
    if (other == key || other == "$defs" || other == "definitions") return true;
    return other == "type" && (key == "enum" || key == "const");
}

bool is_of(const OrderedJson& value, Kind kind) {
    switch (kind) {
        case Kind::kNull:
            return value.is_null();
        case Kind::kBoolean:
            return value.is_boolean();
        case Kind::kInteger: {
            const bool is_float = value.is_number_float();
            return value.is_number_integer() || is_long_integer(value) ||
                   (is_float && std::trunc(value.get<double>()) == value.get<double>());
        }
        case Kind::kNumber:
            return value.is_number() || is_long_integer(value);
        case Kind::kString:
            return value.is_string();
        case Kind::kArray:
            return value.is_array();
        case Kind::kObject:
            return value.is_object();
        case Kind::kAny:
        case Kind::kSpelled:
        case Kind::kAnyOf:
            return true;
    }
    return true;
}

class SchemaReader {
  public:
    explicit SchemaReader(const OrderedJson& root) : root_(root) {}

    Result<JsonSchema> read() {
        AFD_TRY(place_of(root_, "#"));
        return JsonSchema{std::move(list_), std::move(ignored_)};
    }

  private:
    // Each schema is read once, however often it is referred to.
    Result<uint32_t> place_of(const OrderedJson& json, const std::string& where) {
        const auto known = places_.find(&json);
        if (known != places_.end()) return known->second;
        if (depth_ == kDepthMax) {
            return invalid_argument("json_schema: {}: it nests deeper than {}",
                                    with(where, kDepthMax));
        }
        const uint32_t place = add({});
        places_.emplace(&json, place);
        ++depth_;
        AFD_ASSIGN(Schema schema, read_one(json, where));
        --depth_;
        if (!is_held_to_format(json)) ignored_.push_back(where.substr(1) + "/format");
        list_[place] = std::move(schema);
        return place;
    }

    uint32_t add(Schema schema) {
        list_.push_back(std::move(schema));
        return static_cast<uint32_t>(list_.size() - 1);
    }

    Result<Schema> read_one(const OrderedJson& json, const std::string& where) {
        if (json.is_boolean() && json.get<bool>()) return Schema{};
        if (!json.is_object()) {
            return invalid_argument("json_schema: {}: is {}; it must be an object or true",
                                    with(where, shown(json)));
        }
        AFD_TRY(check_keywords(json, where));
        if (json.contains("$ref")) return reference(json["$ref"], where);
        if (json.contains("const")) {
            return spelled(OrderedJson::array({json["const"]}), json, where);
        }
        if (json.contains("enum")) return spelled(json["enum"], json, where);
        if (json.contains("anyOf")) return any_of(json["anyOf"], where);
        AFD_ASSIGN(const std::vector<Kind> kinds, kinds_of(json, where));
        if (kinds.size() == 1) return of_kind(kinds[0], json, where);
        Schema choice{.kind = Kind::kAnyOf};
        for (const Kind kind : kinds) {
            AFD_ASSIGN(Schema one, of_kind(kind, json, where));
            choice.items.push_back(add(std::move(one)));
        }
        return choice;
    }

    Result<> check_keywords(const OrderedJson& json, const std::string& where) const {
        for (const auto& [key, value] : json.items()) {
            // Within a schema it would say what "#" is there.
            if (key == "$id" && &json != &root_) {
                return invalid_argument("json_schema: {}: $id is not supported within a schema",
                                        with(where));
            }
            if (is_in(kAnnotations, key)) continue;
            if (!is_in(kKnown, key)) {
                return invalid_argument(
                    "json_schema: {}: {} is not supported; known are {}",
                    with(where, shown(key), fmt::to_string(fmt::join(kKnown, ", "))));
            }
            if (!is_in(kAlone, key)) continue;
            for (const auto& [other, unused] : json.items()) {
                if (is_in(kAnnotations, other) || may_stand_beside(key, other)) continue;
                return invalid_argument("json_schema: {}: {} beside {} is not supported",
                                        with(where, shown(other), key));
            }
        }
        return {};
    }

    Result<Schema> reference(const OrderedJson& ref, const std::string& where) {
        const std::string text = ref.is_string() ? ref.get<std::string>() : "";
        if (!text.starts_with('#')) {
            return invalid_argument(
                "json_schema: {}: $ref is {}; it must lead into the schema: #/$defs/...",
                with(where, shown(ref)));
        }
        const OrderedJson* found = find_reference(root_, std::string_view(text).substr(1));
        if (found == nullptr) {
            return invalid_argument("json_schema: {}: $ref is {}, which is not there",
                                    with(where, shown(ref)));
        }
        AFD_ASSIGN(const uint32_t place, place_of(*found, text));
        return Schema{.kind = Kind::kAnyOf, .items = {place}};
    }

    // Of the values those that are of the schema's type, too.
    static Result<Schema> spelled(const OrderedJson& values,
                                  const OrderedJson& json,
                                  const std::string& where) {
        if (!values.is_array() || values.empty()) {
            return invalid_argument("json_schema: {}: enum is {}; it must be a list of values",
                                    with(where, shown(values)));
        }
        std::vector<Kind> kinds = {Kind::kAny};
        if (json.contains("type")) {
            AFD_ASSIGN(kinds, kinds_of(json, where));
        }
        Schema schema{.kind = Kind::kSpelled};
        for (const OrderedJson& value : values) {
            const auto is_of_it = [&](Kind kind) { return is_of(value, kind); };
            if (std::ranges::any_of(kinds, is_of_it)) schema.texts.push_back(compact_text(value));
        }
        if (!schema.texts.empty()) return schema;
        return invalid_argument("json_schema: {}: none of its values is of type {}",
                                with(where, shown(json["type"])));
    }

    Result<Schema> any_of(const OrderedJson& choices, const std::string& where) {
        if (!choices.is_array() || choices.empty()) {
            return invalid_argument("json_schema: {}: anyOf is {}; it must be a list of schemas",
                                    with(where, shown(choices)));
        }
        Schema schema{.kind = Kind::kAnyOf};
        AFD_TRY(read_items(choices, where + "/anyOf/", schema.items));
        return schema;
    }

    Result<> read_items(const OrderedJson& list,
                        const std::string& where,
                        std::vector<uint32_t>& items) {
        for (size_t i = 0; i < list.size(); ++i) {
            AFD_ASSIGN(const uint32_t place, place_of(list[i], where + std::to_string(i)));
            items.push_back(place);
        }
        return {};
    }

    static Result<std::vector<Kind>> kinds_of(const OrderedJson& json, const std::string& where) {
        if (!json.contains("type")) return std::vector{kind_without_type(json)};
        const OrderedJson& type = json["type"];
        const OrderedJson names = type.is_array() ? type : OrderedJson::array({type});
        std::vector<Kind> kinds;
        for (const OrderedJson& name : names) {
            for (const auto& [known, kind] : kTypes) {
                if (name == known) kinds.push_back(kind);
            }
        }
        if (kinds.empty() || kinds.size() != names.size()) {
            return invalid_argument(
                "json_schema: {}: type is {}; known are null, boolean, integer, "
                "number, string, array, object, and lists of them",
                with(where, shown(type)));
        }
        return kinds;
    }

    // Strictly such a schema allows all other types too; who lists properties means an object.
    static Kind kind_without_type(const OrderedJson& json) {
        const auto has = [&](auto... keys) { return (json.contains(keys) || ...); };
        if (has("properties", "required", "additionalProperties")) return Kind::kObject;
        if (has("items", "prefixItems", "minItems", "maxItems")) return Kind::kArray;
        return has("minLength", "maxLength") ? Kind::kString : Kind::kAny;
    }

    Result<Schema> of_kind(Kind kind, const OrderedJson& json, const std::string& where) {
        Schema schema{.kind = kind};
        if (kind == Kind::kString) {
            AFD_ASSIGN(schema.length, counts(json, "minLength", "maxLength", where));
            schema.format = format_of(json);
        } else if (kind == Kind::kArray) {
            AFD_TRY(read_array(json, where, schema));
        } else if (kind == Kind::kObject) {
            AFD_TRY(read_members(json, where, schema));
        }
        return schema;
    }

    // What a string is held to. One with lengths, too, would take a state for each of both.
    static std::optional<StringFormat> format_of(const OrderedJson& json) {
        const auto format = json.find("format");
        const bool has_length = json.contains("minLength") || json.contains("maxLength");
        if (format == json.end() || !format->is_string() || has_length) return std::nullopt;
        return string_format(format->get_ref<const std::string&>());
    }

    // Where values are listed they have the format that they have. REQUIRES: `json` was read.
    static bool is_held_to_format(const OrderedJson& json) {
        const bool is_silent = !json.is_object() || !json.contains("format");
        if (is_silent || json.contains("enum") || json.contains("const")) return true;
        if (json.contains("anyOf") || json.contains("$ref") || !json.contains("type")) return false;
        const OrderedJson& type = json["type"];
        const bool has_string =
            type == "string" ||
            (type.is_array() && std::find(type.begin(), type.end(), "string") != type.end());
        return has_string && format_of(json).has_value();
    }

    static Result<std::optional<size_t>> count(const OrderedJson& json,
                                               const char* name,
                                               const std::string& where) {
        if (!json.contains(name)) return std::optional<size_t>();
        const OrderedJson& value = json[name];
        if (!value.is_number_unsigned() || value.get<uint64_t>() > kCountMax) {
            return invalid_argument("json_schema: {}: {} is {}; it must be 0 ... {}",
                                    with(where, name, shown(value), kCountMax));
        }
        return std::optional(value.get<size_t>());
    }

    static Result<Schema::Count> counts(const OrderedJson& json,
                                        const char* least_name,
                                        const char* most_name,
                                        const std::string& where) {
        AFD_ASSIGN(const auto least, count(json, least_name, where));
        AFD_ASSIGN(const auto most, count(json, most_name, where));
        if (most && *most < least.value_or(0)) {
            return invalid_argument("json_schema: {}: {} is {}, and {} is {}",
                                    with(where, least_name, *least, most_name, *most));
        }
        return Schema::Count{.least = least.value_or(0), .most = most};
    }

    Result<> read_array(const OrderedJson& json, const std::string& where, Schema& schema) {
        AFD_ASSIGN(schema.length, counts(json, "minItems", "maxItems", where));
        if (json.contains("prefixItems")) {
            if (!json["prefixItems"].is_array()) {
                return invalid_argument("json_schema: {}: prefixItems is {}; it must be a list",
                                        with(where, shown(json["prefixItems"])));
            }
            AFD_TRY(read_items(json["prefixItems"], where + "/prefixItems/", schema.items));
        }
        if (!json.contains("items")) {
            schema.rest = add({});
        } else if (json["items"] != false) {
            AFD_ASSIGN(schema.rest, place_of(json["items"], where + "/items"));
        } else if (schema.length.least > schema.items.size()) {
            return invalid_argument("json_schema: {}: minItems is {}, and there are {} prefixItems",
                                    with(where, schema.length.least, schema.items.size()));
        }
        return {};
    }

    Result<> read_members(const OrderedJson& json, const std::string& where, Schema& schema) {
        if (json.contains("properties")) {
            AFD_TRY(read_properties(json["properties"], where, schema));
        }
        AFD_TRY(read_required(json.value("required", OrderedJson::array()), where, schema));
        if (!json.contains("additionalProperties")) {
            // Who names properties wants those.
            if (!json.contains("properties")) schema.rest = add({});
        } else if (json["additionalProperties"] != false) {
            AFD_ASSIGN(schema.rest,
                       place_of(json["additionalProperties"], where + "/additionalProperties"));
        }
        return {};
    }

    Result<> read_properties(const OrderedJson& properties,
                             const std::string& where,
                             Schema& schema) {
        if (!properties.is_object()) {
            return invalid_argument("json_schema: {}: properties is {}; it must be an object",
                                    with(where, shown(properties)));
        }
        for (const auto& [name, property] : properties.items()) {
            if (name.size() > kNameBytesMax) {
                return invalid_argument(
                    "json_schema: {}: the property {} has a name of {} bytes; at most {}",
                    with(where, shown(name), name.size(), kNameBytesMax));
            }
            AFD_ASSIGN(const uint32_t place, place_of(property, where + "/properties/" + name));
            schema.members.push_back({.name = name, .schema = place});
        }
        return {};
    }

    static Result<> read_required(const OrderedJson& required,
                                  const std::string& where,
                                  Schema& schema) {
        if (!required.is_array()) {
            return invalid_argument("json_schema: {}: required is {}; it must be a list of names",
                                    with(where, shown(required)));
        }
        std::map<std::string_view, Schema::Member*> members;
        for (Schema::Member& member : schema.members) members.emplace(member.name, &member);
        for (const OrderedJson& name : required) {
            const auto found =
                name.is_string() ? members.find(name.get_ref<const std::string&>()) : members.end();
            if (found == members.end()) {
                return invalid_argument(
                    "json_schema: {}: required has {}, which is none of its properties",
                    with(where, shown(name)));
            }
            if (std::exchange(found->second->is_required, true)) {
                return invalid_argument("json_schema: {}: required has {} twice",
                                        with(where, shown(name)));
            }
        }
        return {};
    }

    const OrderedJson& root_;
    SchemaList list_;
    std::vector<std::string> ignored_;
    std::map<const OrderedJson*, uint32_t> places_;
    int depth_ = 0;
};

}  // namespace

Result<JsonSchema> read_json_schema(std::string_view text) {
    if (text.size() > kSchemaBytesMax) {
        return invalid_argument("json_schema: #: it has {} bytes; at most {}",
                                with(text.size(), kSchemaBytesMax));
    }
    AFD_ASSIGN(const OrderedJson json, parse_ordered_json(text, "json_schema"));
    return SchemaReader(json).read();
}

bool is_of_objects(const SchemaList& schemas) {
    // What leads back to itself adds nothing to what it may be.
    std::vector<bool> was_seen(schemas.size());
    std::vector<uint32_t> open = {0};
    while (!open.empty()) {
        const uint32_t place = open.back();
        open.pop_back();
        if (was_seen[place]) continue;
        was_seen[place] = true;
        const Schema& schema = schemas[place];
        if (schema.kind == Kind::kAnyOf) {
            open.insert(open.end(), schema.items.begin(), schema.items.end());
            continue;
        }
        const bool is_listed = schema.kind == Kind::kSpelled;
        const bool are_objects = std::ranges::all_of(
            schema.texts, [](const std::string& text) { return text.starts_with('{'); });
        if (schema.kind != Kind::kObject && !(is_listed && are_objects)) return false;
    }
    return true;
}

}  // namespace afd::model
