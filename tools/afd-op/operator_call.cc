// SPDX-License-Identifier: Apache-2.0
#include "tools/afd-op/operator_call.h"

#include <algorithm>
#include <cstdint>

#include "ops/record/operator_check.h"
#include "schedule/schedule_context.h"

namespace afd::tools {
namespace {

using ops::AttributeSpec;
using ops::MemberType;
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

const char* kind_text(MemberType type) {
    switch (type) {
        case MemberType::kInt:
            return "an integer from -2^63 to 2^63 - 1";
        case MemberType::kFloat:
            return "a number";
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
            return value.is_number();
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
        if (!is_of_kind(value, known->member.type)) {
            return refuse(
                spec,
                name + " is " + value.dump() + "; it must be " + kind_text(known->member.type));
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

bool is_in_place(TensorRole role) {
    return role == TensorRole::kInPlace || role == TensorRole::kOptionalInPlace;
}

template <typename T>
T& member(const ops::RequestMember& bound, void* request) {
    return *static_cast<T*>(bound.of(request));
}

std::span<std::byte> bytes_of(const ops::TensorView& view) {
    return {static_cast<std::byte*>(view.data), view.num_elements() * size_of(view.dtype)};
}

// The windows of a tensor [workers, bytes], one span a worker.
std::vector<std::span<std::byte>> windows_of(const ops::TensorView& view) {
    std::vector<std::span<std::byte>> windows;
    if (view.rank != 2) return windows;
    for (size_t i = 0; i < view.shape[0]; ++i) {
        windows.push_back({static_cast<std::byte*>(view.data) + i * view.shape[1], view.shape[1]});
    }
    return windows;
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

Result<> OperatorCall::fill(void* request) {
    for (const AttributeSpec& spec : spec_->attributes) {
        if (spec.member.of != nullptr) fill_attribute(spec, request);
    }
    for (const TensorSpec& spec : spec_->tensors) {
        if (spec.member.of != nullptr && is_read(spec.role)) AFD_TRY(fill_tensor(spec, request));
    }
    return {};
}

void OperatorCall::fill_attribute(const AttributeSpec& spec, void* request) {
    const nlohmann::json& value = attribute(spec.name);
    switch (spec.member.type) {
        case MemberType::kInt:
            member<int64_t>(spec.member, request) = value.get<int64_t>();
            return;
        case MemberType::kFloat:
            member<float>(spec.member, request) = static_cast<float>(value.get<double>());
            return;
        case MemberType::kBool:
            member<bool>(spec.member, request) = value.get<bool>();
            return;
        case MemberType::kInts:
            // Kept here, since the request only points to the list.
            lists_.push_back(value.get<std::vector<int64_t>>());
            member<std::span<const int64_t>>(spec.member, request) = lists_.back();
            return;
        case MemberType::kString:
            member<std::string_view>(spec.member, request) = value.get_ref<const std::string&>();
            return;
        default:
            AFD_ASSERT(false, "%s is no attribute", std::string(spec.name).c_str());
    }
}

Result<> OperatorCall::fill_tensor(const TensorSpec& spec, void* request) {
    if (spec.member.type == MemberType::kInput) {
        member<ops::ConstTensorView>(spec.member, request) = input(spec.name);
        return {};
    }
    ops::TensorView view;
    if (is_in_place(spec.role)) {
        view = in_place(spec.name);
    } else if (const auto found = inputs_.find(std::string(spec.name)); found != inputs_.end()) {
        view = found->second.view();
    }
    switch (spec.member.type) {
        case MemberType::kTensor:
            member<ops::TensorView>(spec.member, request) = view;
            return {};
        case MemberType::kContext: {
            ops::OperatorCheck check(*spec_);
            check.tensor(spec.name, view);
            AFD_TRY(check.finish());
            // Behind the check: from here on it is a pointer, which knows no size.
            member<schedule::ScheduleContext*>(spec.member, request) =
                static_cast<schedule::ScheduleContext*>(view.data);
            return {};
        }
        case MemberType::kBytes:
            member<std::span<std::byte>>(spec.member, request) = bytes_of(view);
            return {};
        case MemberType::kConstBytes:
            member<std::span<const std::byte>>(spec.member, request) = bytes_of(view);
            return {};
        default:
            windows_.push_back(windows_of(view));
            member<std::span<const std::span<std::byte>>>(spec.member, request) = windows_.back();
            return {};
    }
}

void OperatorCall::make_outputs(void* request) {
    for (const TensorSpec& spec : spec_->tensors) {
        if (spec.member.of == nullptr || is_read(spec.role)) continue;
        auto& view = member<ops::TensorView>(spec.member, request);
        // The operator's own shapes: an output that is off has none, and is not made.
        if (!view.given()) continue;
        view = output(spec.name, view.dtype, {view.shape.begin(), view.shape.begin() + view.rank});
    }
}

Result<> OperatorCall::refuse_reference() const {
    if (!is_reference_) return {};
    return refuse(*spec_, "there is one implementation; leave --reference out");
}

const nlohmann::json& OperatorCall::attribute(std::string_view name) const {
    const auto found = attributes_.find(std::string(name));
    AFD_ASSERT(found != attributes_.end(), "no attribute %s", std::string(name).c_str());
    return *found;
}

int64_t OperatorCall::integer(std::string_view name) const {
    return attribute(name).get<int64_t>();
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
