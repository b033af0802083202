// SPDX-License-Identifier: Apache-2.0
#include "tools/afd-op/operator_call.h"

#include <algorithm>

namespace afd::tools {
namespace {

using ops::AttributeKind;
using ops::AttributeSpec;
using ops::OperatorSpec;
using ops::TensorRole;
using ops::TensorSpec;

template <typename Specs>
std::string names_of(const Specs& specs) {
    std::string names;
    for (const auto& spec : specs) {
        names += (names.empty() ? "" : ", ") + std::string(spec.name);
    }
    return names.empty() ? "none" : names;
}

const char* kind_text(AttributeKind kind) {
    switch (kind) {
        case AttributeKind::kInt:
            return "an integer";
        case AttributeKind::kFloat:
            return "a number";
        case AttributeKind::kBool:
            return "true or false";
        case AttributeKind::kInts:
            return "a list of integers";
        case AttributeKind::kString:
            return "a string";
    }
    return "unknown";
}

bool is_of_kind(const nlohmann::json& value, AttributeKind kind) {
    switch (kind) {
        case AttributeKind::kInt:
            return value.is_number_integer();
        case AttributeKind::kFloat:
            return value.is_number();
        case AttributeKind::kBool:
            return value.is_boolean();
        case AttributeKind::kInts:
            return value.is_array() && std::all_of(value.begin(), value.end(), [](const auto& v) {
                       return v.is_number_integer();
                   });
        case AttributeKind::kString:
            return value.is_string();
    }
    return false;
}

Error refuse(const OperatorSpec& spec, const std::string& message) {
    return {Code::kInvalidArgument, std::string(spec.name) + ": " + message};
}

Result<nlohmann::json> complete_attributes(const OperatorSpec& spec, const nlohmann::json& given) {
    if (!given.is_object()) return refuse(spec, "the attributes must be a JSON object");
    for (const auto& [name, value] : given.items()) {
        const AttributeSpec* known = spec.find_attribute(name);
        if (known == nullptr) {
            return refuse(
                spec, "there is no attribute " + name + "; there are " + names_of(spec.attributes));
        }
        if (!is_of_kind(value, known->kind)) {
            return refuse(spec,
                          name + " is " + value.dump() + "; it must be " + kind_text(known->kind));
        }
    }
    nlohmann::json all = given;
    for (const AttributeSpec& attribute : spec.attributes) {
        const std::string name(attribute.name);
        if (all.contains(name)) continue;
        if (attribute.default_value.empty()) {
            return refuse(spec, "attribute " + name + " is missing; it has no default");
        }
        all[name] = nlohmann::json::parse(attribute.default_value);
    }
    return all;
}

bool is_read(TensorRole role) {
    return role != TensorRole::kOutput && role != TensorRole::kOptionalOutput;
}

}  // namespace

Result<OperatorCall> OperatorCall::make(const OperatorSpec& spec,
                                        TensorMap inputs,
                                        const nlohmann::json& attributes,
                                        bool is_reference,
                                        ops::Parallel& parallel) {
    for (const auto& [name, tensor] : inputs) {
        const TensorSpec* known = spec.find_tensor(name);
        if (known == nullptr || !is_read(known->role)) {
            std::vector<TensorSpec> wanted;
            std::copy_if(spec.tensors.begin(),
                         spec.tensors.end(),
                         std::back_inserter(wanted),
                         [](const TensorSpec& tensor_spec) { return is_read(tensor_spec.role); });
            return refuse(spec,
                          "there is no input tensor " + name + "; there are " + names_of(wanted));
        }
    }
    OperatorCall call;
    AFD_ASSIGN(call.attributes_, complete_attributes(spec, attributes));
    call.spec_ = &spec;
    call.inputs_ = std::move(inputs);
    call.is_reference_ = is_reference;
    call.parallel_ = &parallel;
    return call;
}

const nlohmann::json& OperatorCall::attribute(std::string_view name) const {
    const auto found = attributes_.find(std::string(name));
    AFD_ASSERT(found != attributes_.end(), "no attribute %s", std::string(name).c_str());
    return *found;
}

int64_t OperatorCall::integer(std::string_view name) const {
    return attribute(name).get<int64_t>();
}

double OperatorCall::number(std::string_view name) const {
    return attribute(name).get<double>();
}

bool OperatorCall::flag(std::string_view name) const {
    return attribute(name).get<bool>();
}

std::string OperatorCall::word(std::string_view name) const {
    return attribute(name).get<std::string>();
}

std::vector<int64_t> OperatorCall::integers(std::string_view name) const {
    return attribute(name).get<std::vector<int64_t>>();
}

ops::ConstTensorView OperatorCall::input(std::string_view name) const {
    AFD_ASSERT(spec_->find_tensor(name) != nullptr, "no tensor %s", std::string(name).c_str());
    const auto found = inputs_.find(std::string(name));
    return found == inputs_.end() ? ops::ConstTensorView() : found->second.view();
}

ops::TensorView OperatorCall::output(std::string_view name,
                                     ops::DType dtype,
                                     std::vector<size_t> shape) {
    const auto [place, is_new] =
        outputs_.insert_or_assign(std::string(name), Tensor(dtype, std::move(shape)));
    return place->second.view();
}

ops::TensorView OperatorCall::output_like(std::string_view name, const ops::TensorView& shape) {
    if (!shape.given()) return {};
    return output(name, shape.dtype, {shape.shape.begin(), shape.shape.begin() + shape.rank});
}

ops::TensorView OperatorCall::in_place(std::string_view name) {
    const auto found = inputs_.find(std::string(name));
    if (found == inputs_.end()) return {};
    const auto [place, is_new] = outputs_.insert_or_assign(std::string(name), found->second.copy());
    return place->second.view();
}

std::span<std::byte> OperatorCall::workspace(size_t bytes) {
    workspace_.reserve(bytes);
    return workspace_.bytes();
}

}  // namespace afd::tools
