// SPDX-License-Identifier: Apache-2.0
#include "calls/call_attributes.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "calls/name_list.h"
#include "ops/record/operator_check.h"

namespace afd::calls {
namespace {

using ops::AttributeSpec;
using ops::MemberType;
using ops::OperatorSpec;

const char* kind_text(MemberType type) {
    switch (type) {
        case MemberType::kInt:
            return "an integer from -2^63 to 2^63 - 1";
        case MemberType::kFloat:
            return "a number of at most 3.4028e38 in magnitude, which fp32 holds";
        case MemberType::kBool:
            return "true or false";
        case MemberType::kInts:
            return "a list of integers from -2^63 to 2^63 - 1";
        case MemberType::kString:
            return "a string";
        default:
            return "unknown";
    }
}

// JSON knows integers up to 2^64 - 1, and get<int64_t>() would make negative numbers of them.
bool is_int64(const nlohmann::json& value) {
    return value.is_number_integer() &&
           (!value.is_number_unsigned() || value.get<uint64_t>() <= uint64_t{INT64_MAX});
}

bool is_of_kind(const nlohmann::json& value, MemberType type) {
    switch (type) {
        case MemberType::kInt:
            return is_int64(value);
        case MemberType::kFloat:
            // What fp32 does not hold would be infinite in the request. The shortest text of its
            // largest number is a double beyond it that rounds to it.
            return value.is_number() && std::isfinite(static_cast<float>(value.get<double>()));
        case MemberType::kBool:
            return value.is_boolean();
        case MemberType::kInts:
            return value.is_array() && std::all_of(value.begin(), value.end(), is_int64);
        case MemberType::kString:
            return value.is_string();
        default:
            return false;
    }
}

std::string text_of(const nlohmann::json& value) {
    // Who writes it out recurses.
    const auto is_nested = [](const auto& element) { return element.is_structured(); };
    if (value.is_structured() && std::any_of(value.begin(), value.end(), is_nested)) {
        return value.is_array() ? "a list of lists or objects" : "an object of lists or objects";
    }
    return ops::excerpt(value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

}  // namespace

Error refuse_call(const ops::OperatorSpec& spec, const std::string& message) {
    return {Code::kInvalidArgument, std::string(spec.name) + ": " + message};
}

Result<nlohmann::json> parse_attributes(const OperatorSpec& spec, std::string_view text) {
    std::set<std::string> names;
    std::string twice;
    // JSON itself says nothing about a name that stands twice, and the library takes the last.
    const auto watch = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json& key) {
        const bool is_name = depth == 1 && event == nlohmann::json::parse_event_t::key;
        if (is_name && !names.insert(key.get<std::string>()).second) twice = key;
        return true;
    };
    nlohmann::json attributes = nlohmann::json::parse(text, watch, false);
    if (attributes.is_discarded()) {
        return refuse_call(spec, "the attributes are no JSON: " + ops::excerpt(text));
    }
    if (!twice.empty()) {
        return refuse_call(spec, "attribute " + ops::excerpt(twice) + " is given twice");
    }
    return attributes;
}

Result<nlohmann::json> complete_attributes(const OperatorSpec& spec, const nlohmann::json& given) {
    if (!given.is_object()) return refuse_call(spec, "the attributes must be a JSON object");
    for (const auto& [name, value] : given.items()) {
        const AttributeSpec* known = spec.find_attribute(name);
        if (known == nullptr) {
            return refuse_call(spec,
                               "there is no attribute " + ops::excerpt(name) + "; there are " +
                                   names_of(spec.attributes) + suggestion(name, spec.attributes));
        }
        if (!is_of_kind(value, known->member.type)) {
            return refuse_call(
                spec,
                name + " is " + text_of(value) + "; it must be " + kind_text(known->member.type));
        }
    }
    nlohmann::json all = given;
    for (const AttributeSpec& attribute : spec.attributes) {
        const std::string name(attribute.name);
        if (all.contains(name)) continue;
        if (attribute.default_value.empty()) {
            return refuse_call(spec, "attribute " + name + " is missing; it has no default");
        }
        all[name] = nlohmann::json::parse(attribute.default_value);
    }
    return all;
}

}  // namespace afd::calls
