// SPDX-License-Identifier: Apache-2.0
#include "model/grammar/schema/schema_reader.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "model/grammar/schema/keyword_values.h"
#include "model/grammar/schema/number_bounds.h"
#include "model/grammar/schema/schema_keywords.h"
#include "model/grammar/schema/schema_types.h"
#include "model/json/ordered_json.h"
#include "model/json/schema_reference.h"
#include "model/unicode/utf8.h"
#include "proto/failure.h"

namespace afd::model {
namespace {

// Members are written in the order in which the schema has them.
using OrderedJson = nlohmann::ordered_json;
using Kind = Schema::Kind;

constexpr int kDepthMax = 64;  // Schemas within each other.
constexpr size_t kNameBytesMax = 256;

// A name of the client's for a message, which is one line.
std::string in_one_line(std::string name) {
    std::ranges::replace_if(
        name, [](char c) { return static_cast<unsigned char>(c) < ' '; }, '?');
    return name;
}

class SchemaReader {
  public:
    SchemaReader(const OrderedJson& root, LookBudget& looks) : root_(root), looks_(looks) {}

    Result<JsonSchema> read() {
        place_of_referred(root_, "#");
        // A chain of references is no nesting: what they lead to is read one by one.
        for (size_t i = 0; i < referred_.size(); ++i) {
            const Referred next = referred_[i];
            AFD_TRY(read_into(next.place, *next.json, next.where));
        }
        for (const Alternatives& one : alternatives_) AFD_TRY(check_disjoint(one));
        return JsonSchema{std::move(list_), std::move(ignored_)};
    }

  private:
    struct Referred {
        uint32_t place;
        const OrderedJson* json;
        std::string where;
    };
    // Of a oneOf.
    struct Alternatives {
        std::vector<uint32_t> choices;
        std::string where;
    };

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
        AFD_TRY(read_into(place, json, where));
        --depth_;
        return place;
    }

    // Of a schema that is read when all that stands around the reference to it was.
    uint32_t place_of_referred(const OrderedJson& json, const std::string& where) {
        const auto known = places_.find(&json);
        if (known != places_.end()) return known->second;
        const uint32_t place = add({});
        places_.emplace(&json, place);
        referred_.push_back({place, &json, where});
        return place;
    }

    Result<> read_into(uint32_t place, const OrderedJson& json, const std::string& where) {
        AFD_ASSIGN(Schema schema, read_one(json, where));
        if (!is_held_to_format(json)) ignore(where + "/format");
        const bool is_nullable = json.is_object() && json.value("nullable", OrderedJson()) == true;
        if (is_nullable) ignore(where + "/nullable");
        list_[place] = std::move(schema);
        return {};
    }

    void ignore(const std::string& where) {
        if (ignored_.size() < JsonSchema::kIgnoredMax) ignored_.push_back(where.substr(1));
    }

    uint32_t add(Schema schema) {
        list_.push_back(std::move(schema));
        return static_cast<uint32_t>(list_.size() - 1);
    }

    Result<Schema> read_one(const OrderedJson& json, const std::string& where) {
        if (json.is_boolean() && json.get<bool>()) return Schema{};
        if (!json.is_object()) {
            return invalid_argument("json_schema: {}: is {}; it must be an object or true",
                                    with(where, shown_text(json)));
        }
        AFD_TRY(check_keywords(json, &json == &root_, where));
        if (json.contains("$ref")) return reference(json["$ref"], where);
        if (json.contains("const") || json.contains("enum")) {
            AFD_ASSIGN(std::vector<std::string> texts, read_listed_texts(json, where));
            return Schema{.kind = Kind::kSpelled, .texts = std::move(texts)};
        }
        for (const char* key : {"anyOf", "oneOf", "allOf"}) {
            if (json.contains(key)) return any_of(key, json[key], where);
        }
        AFD_ASSIGN(const std::vector<Kind> kinds, read_kinds(json, where));
        if (kinds.size() == 1) return of_kind(kinds[0], json, where);
        Schema choice{.kind = Kind::kAnyOf};
        for (const Kind kind : kinds) {
            AFD_ASSIGN(Schema one, of_kind(kind, json, where));
            choice.items.push_back(add(std::move(one)));
        }
        return choice;
    }

    Result<Schema> reference(const OrderedJson& ref, const std::string& where) {
        const std::string text = ref.is_string() ? ref.get<std::string>() : "";
        if (!text.starts_with('#')) {
            return invalid_argument(
                "json_schema: {}: $ref is {}; it must lead into the schema: #/$defs/...",
                with(where, shown_text(ref)));
        }
        const OrderedJson* found = find_reference(root_, std::string_view(text).substr(1));
        if (found == nullptr) {
            return invalid_argument("json_schema: {}: $ref is {}, which is not there",
                                    with(where, shown_text(ref)));
        }
        return Schema{.kind = Kind::kAnyOf, .items = {place_of_referred(*found, text)}};
    }

    Result<Schema> any_of(const std::string& key,
                          const OrderedJson& choices,
                          const std::string& where) {
        if (!choices.is_array() || choices.empty()) {
            return invalid_argument("json_schema: {}: {} is {}; it must be a list of schemas",
                                    with(where, key, shown_text(choices)));
        }
        if (key == "allOf" && choices.size() > 1) {
            return invalid_argument(
                "json_schema: {}: allOf of {} schemas is not supported; of one it is",
                with(where, choices.size()));
        }
        Schema schema{.kind = Kind::kAnyOf};
        AFD_TRY(read_items(choices, where + "/" + key + "/", schema.items));
        if (key == "oneOf") alternatives_.push_back({schema.items, where});
        return schema;
    }

    Result<> check_disjoint(const Alternatives& one) {
        for (size_t i = 0; i < one.choices.size(); ++i) {
            for (size_t j = 0; j < i; ++j) {
                if (are_disjoint(list_, one.choices[i], one.choices[j], looks_)) continue;
                if (looks_.is_spent()) {
                    return invalid_argument(
                        "json_schema: {}: oneOf has too many choices to tell whether a value may "
                        "fit two of them; use anyOf",
                        with(one.where));
                }
                return invalid_argument(
                    "json_schema: {}: oneOf is not supported where a value may fit two of its "
                    "choices, as {} and {}: give them other types, or a required member with "
                    "another const each, or use anyOf",
                    with(one.where, j, i));
            }
        }
        return {};
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

    Result<Schema> of_kind(Kind kind, const OrderedJson& json, const std::string& where) {
        Schema schema{.kind = kind, .has_type = json.contains("type")};
        if (kind == Kind::kString) {
            AFD_ASSIGN(schema.length, read_counts(json, "minLength", "maxLength", where));
            schema.format = format_of(json);
        } else if (kind == Kind::kInteger || kind == Kind::kNumber) {
            AFD_ASSIGN(schema.range, read_number_bounds(json, kind == Kind::kInteger, where));
        } else if (kind == Kind::kArray) {
            AFD_TRY(read_array(json, where, schema));
        } else if (kind == Kind::kObject) {
            AFD_TRY(read_members(json, where, schema));
        }
        return schema;
    }

    Result<> read_array(const OrderedJson& json, const std::string& where, Schema& schema) {
        AFD_ASSIGN(schema.length, read_counts(json, "minItems", "maxItems", where));
        if (json.contains("prefixItems")) {
            if (!json["prefixItems"].is_array()) {
                return invalid_argument("json_schema: {}: prefixItems is {}; it must be a list",
                                        with(where, shown_text(json["prefixItems"])));
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
        schema.is_closed = json.value("additionalProperties", OrderedJson()) == false;
        return {};
    }

    Result<> read_properties(const OrderedJson& properties,
                             const std::string& where,
                             Schema& schema) {
        if (!properties.is_object()) {
            return invalid_argument("json_schema: {}: properties is {}; it must be an object",
                                    with(where, shown_text(properties)));
        }
        for (const auto& [name, property] : properties.items()) {
            if (name.size() > kNameBytesMax) {
                return invalid_argument(
                    "json_schema: {}: the property {} has a name of {} bytes; at most {}",
                    with(where, shown_text(name), name.size(), kNameBytesMax));
            }
            AFD_ASSIGN(const uint32_t place,
                       place_of(property, where + "/properties/" + in_one_line(name)));
            schema.members.push_back({.name = name, .schema = place});
        }
        return {};
    }

    static Result<> read_required(const OrderedJson& required,
                                  const std::string& where,
                                  Schema& schema) {
        if (!required.is_array()) {
            return invalid_argument("json_schema: {}: required is {}; it must be a list of names",
                                    with(where, shown_text(required)));
        }
        std::map<std::string_view, Schema::Member*> members;
        for (Schema::Member& member : schema.members) members.emplace(member.name, &member);
        for (const OrderedJson& name : required) {
            const auto found =
                name.is_string() ? members.find(name.get_ref<const std::string&>()) : members.end();
            if (found == members.end()) {
                return invalid_argument(
                    "json_schema: {}: required has {}, which is none of its properties",
                    with(where, shown_text(name)));
            }
            if (std::exchange(found->second->is_required, true)) {
                return invalid_argument("json_schema: {}: required has {} twice",
                                        with(where, shown_text(name)));
            }
        }
        return {};
    }

    const OrderedJson& root_;
    SchemaList list_;
    std::vector<Referred> referred_;  // In the order in which they are read.
    std::vector<Alternatives> alternatives_;
    std::vector<std::string> ignored_;
    std::map<const OrderedJson*, uint32_t> places_;
    int depth_ = 0;
    LookBudget& looks_;  // Of check_disjoint.
};

}  // namespace

Result<JsonSchema> read_json_schema(std::string_view text) {
    LookBudget looks(kDisjointLooksMax);
    return read_json_schema(text, looks);
}

Result<JsonSchema> read_json_schema(std::string_view text, LookBudget& looks) {
    if (text.size() > kSchemaBytesMax) {
        return invalid_argument("json_schema: #: it has {} bytes; at most {}",
                                with(text.size(), kSchemaBytesMax));
    }
    AFD_ASSIGN(const OrderedJson json, parse_ordered_json(text, "json_schema"));
    return SchemaReader(json, looks).read();
}

}  // namespace afd::model
