// SPDX-License-Identifier: Apache-2.0
#include "calls/describe.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

namespace afd::calls {
namespace {

using ops::AttributeSpec;
using ops::DType;
using ops::MemberType;
using ops::OperatorSpec;
using ops::TensorRole;
using ops::TensorSpec;

const char* kind_name(MemberType type) {
    switch (type) {
        case MemberType::kInt:
            return "int";
        case MemberType::kFloat:
            return "float";
        case MemberType::kBool:
            return "bool";
        case MemberType::kInts:
            return "ints";
        case MemberType::kString:
            return "string";
        default:
            return "unknown";
    }
}

const char* role_name(TensorRole role) {
    switch (role) {
        case TensorRole::kInput:
            return "input";
        case TensorRole::kOptionalInput:
            return "input, optional";
        case TensorRole::kOutput:
            return "output";
        case TensorRole::kOptionalOutput:
            return "output, optional";
        case TensorRole::kInPlace:
            return "in place";
        case TensorRole::kOptionalInPlace:
            return "in place, optional";
    }
    return "unknown";
}

std::vector<std::string> dtypes_of(const TensorSpec& tensor) {
    std::vector<std::string> names;
    for (int i = 0; i <= static_cast<int>(DType::kBool); ++i) {
        const auto dtype = static_cast<DType>(i);
        if (tensor.dtypes.has(dtype)) names.emplace_back(name_of(dtype));
    }
    return names;
}

std::vector<std::string> values_of(const AttributeSpec& attribute) {
    std::vector<std::string> values;
    for (const int64_t choice : attribute.choices) values.push_back(std::to_string(choice));
    for (const std::string_view word : attribute.words) values.emplace_back(word);
    if (attribute.member.type == MemberType::kBool) values = {"false", "true"};
    return values;
}

std::string allowed_text(const AttributeSpec& attribute) {
    const std::vector<std::string> values = values_of(attribute);
    if (!values.empty()) return fmt::format("{}", fmt::join(values, " | "));
    if (attribute.member.type != MemberType::kInt) return "";
    if (attribute.most == INT64_MAX) {
        return attribute.least == INT64_MIN ? "" : fmt::format(">= {}", attribute.least);
    }
    if (attribute.least == INT64_MIN) return fmt::format("<= {}", attribute.most);
    return fmt::format("{} to {}", attribute.least, attribute.most);
}

// With choices, "value clause; value clause".
std::string meaning_text(const AttributeSpec& attribute) {
    const std::vector<std::string> values = values_of(attribute);
    std::vector<std::string> clauses;
    std::string_view rest = attribute.meaning;
    for (size_t at = 0; at != std::string_view::npos;) {
        at = rest.find("; ");
        clauses.emplace_back(rest.substr(0, at));
        if (at != std::string_view::npos) rest.remove_prefix(at + 2);
    }
    if (values.empty() || values.size() != clauses.size()) return std::string(attribute.meaning);
    for (size_t i = 0; i < values.size(); ++i) clauses[i] = values[i] + " " + clauses[i];
    return fmt::format("{}", fmt::join(clauses, "; "));
}

std::string sentences(const char* title, std::span<const std::string_view> lines) {
    if (lines.empty()) return "";
    std::string text = fmt::format("\n{}\n", title);
    for (const std::string_view line : lines) text += fmt::format("  - {}\n", line);
    return text;
}

}  // namespace

std::string describe_as_text(const OperatorSpec& spec) {
    std::string text = fmt::format("{}: {}\n  {}\n  source: {}\n  reference: {}\n",
                                   spec.name,
                                   spec.summary,
                                   spec.formula,
                                   spec.source,
                                   spec.reference.empty() ? "none" : spec.reference);
    if (!spec.attributes.empty()) text += "\nAttributes\n";
    for (const AttributeSpec& attribute : spec.attributes) {
        const std::string standard = attribute.default_value.empty()
                                         ? "required"
                                         : fmt::format("default {}", attribute.default_value);
        text += fmt::format("  {:<24} {:<6} {:<14} {}\n{:>8}{}\n",
                            attribute.name,
                            kind_name(attribute.member.type),
                            standard,
                            allowed_text(attribute),
                            "",
                            meaning_text(attribute));
    }
    text += "\nTensors\n";
    for (const TensorSpec& tensor : spec.tensors) {
        text += fmt::format("  {:<30} {:<18} {} {}\n{:>8}{}\n",
                            tensor.name,
                            role_name(tensor.role),
                            fmt::join(dtypes_of(tensor), "|"),
                            tensor.shape,
                            "",
                            tensor.meaning);
    }
    text += sentences("Rules", spec.rules);
    text += sentences("Limits of one hardware revision that do not hold here", spec.lifted);
    return text;
}

nlohmann::ordered_json describe_as_json(const OperatorSpec& spec) {
    nlohmann::ordered_json object = {{"name", spec.name},
                                     {"summary", spec.summary},
                                     {"formula", spec.formula},
                                     {"source", spec.source},
                                     {"reference", spec.reference}};
    object["attributes"] = nlohmann::ordered_json::array();
    for (const AttributeSpec& attribute : spec.attributes) {
        object["attributes"].push_back({{"name", attribute.name},
                                        {"kind", kind_name(attribute.member.type)},
                                        {"default", attribute.default_value},
                                        {"values", values_of(attribute)},
                                        {"allowed", allowed_text(attribute)},
                                        {"meaning", meaning_text(attribute)}});
    }
    object["tensors"] = nlohmann::ordered_json::array();
    for (const TensorSpec& tensor : spec.tensors) {
        object["tensors"].push_back({{"name", tensor.name},
                                     {"role", role_name(tensor.role)},
                                     {"dtypes", dtypes_of(tensor)},
                                     {"shape", tensor.shape},
                                     {"meaning", tensor.meaning}});
    }
    object["rules"] =
        nlohmann::ordered_json(std::vector<std::string>(spec.rules.begin(), spec.rules.end()));
    object["lifted"] =
        nlohmann::ordered_json(std::vector<std::string>(spec.lifted.begin(), spec.lifted.end()));
    return object;
}

}  // namespace afd::calls
