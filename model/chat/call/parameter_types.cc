// SPDX-License-Identifier: Apache-2.0
#include "model/chat/call/parameter_types.h"

#include <nlohmann/json.hpp>
#include <optional>

#include "model/chat/message/chat_text.h"
#include "model/json/look_budget.h"
#include "model/json/ordered_json.h"
#include "model/json/schema_reference.h"

namespace afd::model {
namespace {

using SchemaJson = nlohmann::ordered_json;
using FunctionKinds = ParameterTypes::FunctionKinds;

// References within each other; a schema may refer to itself.
constexpr int kSchemaDepthMax = 16;
// Members, values and bytes of references and of names of parameters looked at for all parameters
// of a request: alternatives that refer to each other would multiply. Of what is beyond them
// nothing is said. 128 tools of 20 parameters with names of 16 bytes take a sixth of them.
constexpr size_t kLooksMax = 300'000;

const SchemaJson* member_of(const SchemaJson& json, std::string_view key) {
    if (!json.is_object()) return nullptr;
    const auto at = json.find(std::string(key));
    return at == json.end() ? nullptr : &*at;
}

// Null: it is none, or an empty one, which says nothing.
const SchemaJson* list_of(const SchemaJson& json, std::string_view key) {
    const SchemaJson* list = member_of(json, key);
    return list != nullptr && list->is_array() && !list->empty() ? list : nullptr;
}

uint32_t kind_of(const SchemaJson& value) {
    if (value.is_string()) return ParameterTypes::kString;
    if (value.is_number() || is_long_integer(value)) return ParameterTypes::kNumber;
    if (value.is_boolean()) return ParameterTypes::kBoolean;
    if (value.is_null()) return ParameterTypes::kNull;
    return value.is_object() ? ParameterTypes::kObject : ParameterTypes::kArray;
}

uint32_t kind_named(const SchemaJson& name) {
    if (name == "string") return ParameterTypes::kString;
    if (name == "number" || name == "integer") return ParameterTypes::kNumber;
    if (name == "boolean") return ParameterTypes::kBoolean;
    if (name == "null") return ParameterTypes::kNull;
    if (name == "object") return ParameterTypes::kObject;
    if (name == "array") return ParameterTypes::kArray;
    return ParameterTypes::kAny;
}

// Where it leads within the parameters, which `root` describes.
const SchemaJson* referred(const SchemaJson& root, const SchemaJson& reference) {
    if (!reference.is_string()) return nullptr;
    const std::string_view uri = reference.get_ref<const std::string&>();
    return uri.starts_with('#') ? find_reference(root, uri.substr(1)) : nullptr;
}

// Of the parameters of one request. A value must do for all that a schema says together; where none
// would, or nothing is said, it may be any.
class KindsReader {
  public:
    FunctionKinds parameters_of(const SchemaJson& root) {
        return parameters_of(root, root, kSchemaDepthMax);
    }

  private:
    // Of the parameters that an object of `schema` has as members.
    FunctionKinds parameters_of(const SchemaJson& schema, const SchemaJson& root, int depth) {
        if (!looks_.take(1 + schema.size()) || depth == 0) return {};
        FunctionKinds kinds = listed_in(schema, root);
        if (const SchemaJson* found = find_referred(schema, root)) {
            require(parameters_of(*found, root, depth - 1), kinds);
        }
        for (const char* key : {"anyOf", "oneOf"}) {
            require(parameters_of_alternatives(schema, key, root, depth - 1), kinds);
        }
        if (const SchemaJson* parts = list_of(schema, "allOf")) {
            for (const SchemaJson& one : *parts) {
                require(parameters_of(one, root, depth - 1), kinds);
            }
        }
        return kinds;
    }

    FunctionKinds listed_in(const SchemaJson& schema, const SchemaJson& root) {
        FunctionKinds kinds;
        const SchemaJson* properties = member_of(schema, "properties");
        if (properties != nullptr && properties->is_object()) {
            for (const auto& [name, described] : properties->items()) {
                kinds.listed[name] = looks_.take(name.size())
                                         ? kinds_of(described, root, kSchemaDepthMax)
                                         : uint32_t{ParameterTypes::kAny};
            }
        }
        // No others at all: a model that writes one has made it up, and it may be any.
        const SchemaJson* others = member_of(schema, "additionalProperties");
        if (others != nullptr) kinds.others = kinds_of(*others, root, kSchemaDepthMax);
        return kinds;
    }

    FunctionKinds parameters_of_alternatives(const SchemaJson& schema,
                                             std::string_view key,
                                             const SchemaJson& root,
                                             int depth) {
        const SchemaJson* alternatives = list_of(schema, key);
        if (alternatives == nullptr) return {};
        FunctionKinds kinds = parameters_of(alternatives->front(), root, depth);
        for (size_t i = 1; i < alternatives->size(); ++i) {
            allow(parameters_of((*alternatives)[i], root, depth), kinds);
        }
        return kinds;
    }

    // Leaves in `kinds` what is in `more`, too.
    void require(const FunctionKinds& more, FunctionKinds& kinds) {
        if (!take_names(more, kinds)) return;
        if (more.others != ParameterTypes::kAny) {
            for (auto& [name, of_one] : kinds.listed) {
                if (!more.listed.contains(name)) of_one = common(of_one, more.others);
            }
        }
        for (const auto& [name, of_one] : more.listed) {
            const auto at = kinds.listed.try_emplace(name, kinds.others).first;
            at->second = common(at->second, of_one);
        }
        kinds.others = common(kinds.others, more.others);
    }

    // Adds to `kinds` what is in `more`. A parameter that only one of them lists is meant where it
    // is listed, unless the other one says what its others are.
    void allow(const FunctionKinds& more, FunctionKinds& kinds) {
        if (!take_names(more, kinds)) {
            kinds = {};
            return;
        }
        if (more.others != ParameterTypes::kAny) {
            for (auto& [name, of_one] : kinds.listed) {
                if (!more.listed.contains(name)) of_one |= more.others;
            }
        }
        const uint32_t others = kinds.others == ParameterTypes::kAny ? 0 : kinds.others;
        for (const auto& [name, of_one] : more.listed) {
            kinds.listed.try_emplace(name, others).first->second |= of_one;
        }
        kinds.others |= more.others;
    }

    // The names that are looked for to put both together.
    bool take_names(const FunctionKinds& more, const FunctionKinds& kinds) {
        size_t num_looks = 0;
        for (const auto& [name, unused] : more.listed) num_looks += 1 + name.size();
        if (more.others != ParameterTypes::kAny) {
            for (const auto& [name, unused] : kinds.listed) num_looks += 1 + name.size();
        }
        return looks_.take(num_looks);
    }

    static uint32_t common(uint32_t some, uint32_t more) {
        return (some & more) == 0 ? uint32_t{ParameterTypes::kAny} : some & more;
    }

    uint32_t kinds_of(const SchemaJson& schema, const SchemaJson& root, int depth) {
        if (!looks_.take(1 + schema.size()) || depth == 0) return ParameterTypes::kAny;
        uint32_t kinds = kinds_of_type_and_values(schema);
        kinds &= kinds_of_reference(schema, root, depth - 1);
        kinds &= kinds_of_alternatives(schema, "anyOf", root, depth - 1);
        kinds &= kinds_of_alternatives(schema, "oneOf", root, depth - 1);
        kinds &= kinds_of_all(schema, root, depth - 1);
        if (kinds == 0) return ParameterTypes::kAny;
        const SchemaJson* nullable = member_of(schema, "nullable");
        return nullable && *nullable == true ? kinds | ParameterTypes::kNull : kinds;
    }

    // Clients name null and list only the other values, or list what YAML has made of words: a type
    // that is named counts more than the values.
    uint32_t kinds_of_type_and_values(const SchemaJson& schema) {
        const uint32_t type = kinds_of_type(schema);
        const uint32_t values = kinds_of_values(schema);
        if (type == ParameterTypes::kAny) return values;
        const uint32_t common = type & values;
        return common == 0 ? type : common | (type & ParameterTypes::kNull);
    }

    uint32_t kinds_of_type(const SchemaJson& schema) {
        const SchemaJson* type = member_of(schema, "type");
        if (type == nullptr) return ParameterTypes::kAny;
        const SchemaJson* names = list_of(schema, "type");
        if (names == nullptr) return kind_named(*type);
        if (!looks_.take(names->size())) return ParameterTypes::kAny;
        uint32_t kinds = 0;
        for (const SchemaJson& name : *names) kinds |= kind_named(name);
        return kinds;
    }

    uint32_t kinds_of_values(const SchemaJson& schema) {
        const SchemaJson* constant = member_of(schema, "const");
        const uint32_t kinds = constant ? kind_of(*constant) : uint32_t{ParameterTypes::kAny};
        const SchemaJson* values = list_of(schema, "enum");
        if (values == nullptr || !looks_.take(values->size())) return kinds;
        uint32_t listed = 0;
        for (const SchemaJson& value : *values) listed |= kind_of(value);
        return kinds & listed;
    }

    uint32_t kinds_of_reference(const SchemaJson& schema, const SchemaJson& root, int depth) {
        const SchemaJson* found = find_referred(schema, root);
        return found ? kinds_of(*found, root, depth) : uint32_t{ParameterTypes::kAny};
    }

    // Null: there is no reference, or nothing where it leads.
    const SchemaJson* find_referred(const SchemaJson& schema, const SchemaJson& root) {
        const SchemaJson* reference = member_of(schema, "$ref");
        if (reference == nullptr) return nullptr;
        const size_t num_bytes =
            reference->is_string() ? reference->get_ref<const std::string&>().size() : 0;
        return looks_.take(num_bytes) ? referred(root, *reference) : nullptr;
    }

    uint32_t kinds_of_alternatives(const SchemaJson& schema,
                                   std::string_view key,
                                   const SchemaJson& root,
                                   int depth) {
        const SchemaJson* alternatives = list_of(schema, key);
        if (alternatives == nullptr) return ParameterTypes::kAny;
        uint32_t kinds = 0;
        for (const SchemaJson& one : *alternatives) {
            kinds |= kinds_of(one, root, depth);
            if (kinds == ParameterTypes::kAny) break;
        }
        return kinds;
    }

    uint32_t kinds_of_all(const SchemaJson& schema, const SchemaJson& root, int depth) {
        uint32_t kinds = ParameterTypes::kAny;
        const SchemaJson* parts = list_of(schema, "allOf");
        if (parts == nullptr) return kinds;
        for (const SchemaJson& one : *parts) kinds &= kinds_of(one, root, depth);
        return kinds;
    }

    LookBudget looks_{kLooksMax};
};

// `text` as a value other than a string; nothing: it is none that is taken.
std::optional<std::string> value_of(std::string_view text, uint32_t kinds) {
    const bool takes_string = (kinds & ParameterTypes::kString) != 0;
    const bool takes_null = kinds != ParameterTypes::kAny && (kinds & ParameterTypes::kNull) != 0;
    if (!takes_string && text == "True") return "true";
    if (!takes_string && text == "False") return "false";
    if ((!takes_string || takes_null) && text == "None") return "null";
    const Result<SchemaJson> json = parse_ordered_json(text, "a value");
    if (!json.ok() || json.value().is_string()) return std::nullopt;
    if (takes_string && (kinds & kind_of(json.value())) == 0) return std::nullopt;
    return std::string(text);
}

}  // namespace

std::shared_ptr<const ParameterTypes> ParameterTypes::of(const std::vector<std::string>& tools) {
    Kinds kinds;
    KindsReader reader;
    for (const std::string& tool : tools) {
        const Result<SchemaJson> json = parse_ordered_json(tool, "a tool");
        const SchemaJson* function = json.ok() ? member_of(json.value(), "function") : nullptr;
        const SchemaJson* name = function ? member_of(*function, "name") : nullptr;
        const SchemaJson* schema = function ? member_of(*function, "parameters") : nullptr;
        if (!name || !name->is_string() || !schema) continue;
        FunctionKinds parameters = reader.parameters_of(*schema);
        if (!parameters.says_nothing()) kinds[name->get<std::string>()] = std::move(parameters);
    }
    return std::make_shared<const ParameterTypes>(std::move(kinds));
}

uint32_t ParameterTypes::kinds_of(std::string_view function, std::string_view parameter) const {
    const auto of_function = kinds_.find(function);
    if (of_function == kinds_.end()) return kAny;
    const auto& [listed, others] = of_function->second;
    const auto at = listed.find(parameter);
    return at == listed.end() ? others : at->second;
}

std::string ParameterTypes::json_of(std::string_view function,
                                    std::string_view parameter,
                                    std::string_view text) const {
    const uint32_t kinds = kinds_of(function, parameter);
    if (kinds != kString) {
        if (const auto value = value_of(strip(text), kinds)) return *value;
    }
    return spaced_text(SchemaJson(std::string(text)));
}

}  // namespace afd::model
