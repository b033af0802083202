// SPDX-License-Identifier: Apache-2.0
#include "calls/operator_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "calls/available_memory.h"
#include "calls/call_attributes.h"
#include "calls/memory_check.h"
#include "calls/name_list.h"
#include "calls/size_source.h"
#include "ops/record/operator_check.h"
#include "schedule/context/schedule_context.h"
#include "schedule/layout/geometry.h"

namespace afd::calls {
namespace {

using ops::AttributeSpec;
using ops::MemberType;
using ops::OperatorSpec;
using ops::TensorRole;
using ops::TensorSpec;
using ops::TensorView;

bool is_read(TensorRole role) {
    return role != TensorRole::kOutput && role != TensorRole::kOptionalOutput;
}

bool is_in_place(TensorRole role) {
    return role == TensorRole::kInPlace || role == TensorRole::kOptionalInPlace;
}

Error no_such_tensor(const OperatorSpec& spec, std::string_view name) {
    std::vector<TensorSpec> wanted;
    std::copy_if(spec.tensors.begin(),
                 spec.tensors.end(),
                 std::back_inserter(wanted),
                 [](const TensorSpec& tensor) { return is_read(tensor.role); });
    if (spec.find_tensor(name) != nullptr) {
        return refuse_call(spec,
                           fmt::format("{} is an output; inputs are {}", name, names_of(wanted)));
    }
    return refuse_call(spec,
                       fmt::format("there is no input tensor {}; there are {}{}",
                                   ops::excerpt(name),
                                   names_of(wanted),
                                   suggestion(name, wanted)));
}

template <typename T>
T& member(const ops::RequestMember& bound, void* request) {
    return *static_cast<T*>(bound.of(request));
}

// A window of each worker, as its rows: of a tensor [workers, bytes], or of one that is one.
TensorView rows_of(const TensorView& view) {
    if (view.rank != 1) return view;
    return ops::make_tensor<void>(view.data, view.dtype, {1, view.shape[0]});
}

}  // namespace

Result<std::unique_ptr<OperatorCall>> OperatorCall::make(const RegisteredOperator& entry,
                                                         std::vector<NamedTensor> tensors,
                                                         const nlohmann::json& attributes,
                                                         const CallOptions& options) {
    AFD_ASSERT(options.parallel != nullptr, "no threads");
    std::unique_ptr<OperatorCall> call(new OperatorCall);
    call->spec_ = entry.spec;
    call->options_ = options;
    AFD_TRY(call->take_tensors(std::move(tensors)));
    AFD_ASSIGN(call->attributes_, complete_attributes(*entry.spec, attributes));
    AFD_TRY(entry.prepare(*call));
    AFD_ASSERT(call->fast_ != nullptr, "%s is not ready", std::string(entry.spec->name).c_str());
    AFD_ASSERT(entry.spec->reference.empty() == (call->reference_ == nullptr),
               "%s says of its reference: %s",
               std::string(entry.spec->name).c_str(),
               std::string(entry.spec->reference).c_str());
    if (options.is_reference && call->reference_ == nullptr) {
        return refuse_call(*entry.spec, "there is one implementation; leave the reference out");
    }
    AFD_TRY(check_in_place_separate(*call->spec_, call->in_place_, call->tensors_));
    AFD_TRY(call->check_outputs_given());
    AFD_TRY(call->check_memory());
    return call;
}

Result<> OperatorCall::take_tensors(std::vector<NamedTensor> tensors) {
    tensors_ = std::move(tensors);
    for (NamedTensor& tensor : tensors_) {
        const TensorSpec* known = spec_->find_tensor(tensor.name);
        if (known == nullptr || !is_read(known->role)) return no_such_tensor(*spec_, tensor.name);
        tensor.name = known->name;  // Its text is a literal.
        AFD_TRY(check_given_memory(*spec_, *known, tensor));
        const bool again = std::any_of(tensors_.data(), &tensor, [&](const NamedTensor& other) {
            return other.name == tensor.name;
        });
        if (again && known->member.type != MemberType::kWindows) {
            return refuse_call(*spec_, fmt::format("{} is given twice", tensor.name));
        }
        if (is_in_place(known->role)) in_place_.push_back(tensor);
    }
    return {};
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
    if (spec.member.type == MemberType::kWindows) return fill_windows(spec, request);
    const TensorView view = given(spec.name);
    if (spec.member.type == MemberType::kInput) {
        member<ops::ConstTensorView>(spec.member, request) = view;
        return {};
    }
    if (spec.member.type == MemberType::kTensor) {
        member<TensorView>(spec.member, request) = view;
        return {};
    }
    // Behind the check they are pointers and spans of bytes, which know neither dtype nor shape.
    ops::OperatorCheck check(*spec_);
    check.tensor(spec.name, view);
    AFD_TRY(check.finish());
    switch (spec.member.type) {
        case MemberType::kContext:
            member<schedule::ScheduleContext*>(spec.member, request) =
                static_cast<schedule::ScheduleContext*>(view.data);
            return {};
        case MemberType::kBytes:
            member<std::span<std::byte>>(spec.member, request) = bytes_of(view);
            return {};
        case MemberType::kConstBytes:
            member<std::span<const std::byte>>(spec.member, request) = bytes_of(view);
            return {};
        default:
            AFD_ASSERT(false, "%s is no segment", std::string(spec.name).c_str());
    }
    return {};
}

Result<> OperatorCall::fill_windows(const TensorSpec& spec, void* request) {
    std::vector<std::span<std::byte>>& windows = windows_.emplace_back();
    for (const NamedTensor& tensor : tensors_) {
        if (tensor.name != spec.name) continue;
        const TensorView view = rows_of(tensor.view);
        ops::OperatorCheck check(*spec_);
        check.tensor(spec.name, view);
        AFD_TRY(check.finish());
        if (view.shape[0] > schedule::kSessionsMax - windows.size()) {
            return refuse_call(*spec_,
                               // The sum may wrap.
                               fmt::format("{} has {} windows; at most {} are allowed",
                                           spec.name,
                                           std::max(view.shape[0], windows.size() + view.shape[0]),
                                           schedule::kSessionsMax));
        }
        const size_t alignment = alignment_of(spec, view.dtype);
        if (view.shape[0] > 1 && view.shape[1] % alignment != 0) {
            return refuse_call(
                *spec_,
                fmt::format("{} has windows of {} bytes one behind the other; their size "
                            "must be a multiple of {}, so that each has its flags aligned",
                            spec.name,
                            view.shape[1],
                            alignment));
        }
        for (size_t i = 0; i < view.shape[0]; ++i) {
            windows.push_back(
                {static_cast<std::byte*>(view.data) + i * view.shape[1], view.shape[1]});
        }
    }
    member<std::span<const std::span<std::byte>>>(spec.member, request) = windows;
    return is_in_place(spec.role) ? check_windows_separate(*spec_, spec.name, windows) : Result<>();
}

void OperatorCall::returns(std::string_view name, TensorView& view) {
    // The operator's own shapes: an output that is off has none.
    if (!view.given()) return;
    outputs_.push_back({name, view});
    targets_.push_back(&view);
}

void OperatorCall::returns(void* request) {
    for (const TensorSpec& spec : spec_->tensors) {
        if (spec.member.of == nullptr || is_read(spec.role)) continue;
        returns(spec.name, member<TensorView>(spec.member, request));
    }
}

void OperatorCall::ready(size_t workspace_bytes, Run fast, Reference reference) {
    workspace_bytes_ = options_.is_reference ? 0 : workspace_bytes;
    fast_ = std::move(fast);
    reference_ = std::move(reference);
}

uint64_t OperatorCall::tensor_bytes() const {
    uint64_t bytes = 0;
    for (const auto* tensors : {&tensors_, &outputs_}) {
        for (const NamedTensor& tensor : *tensors) {
            bytes += tensor.view.num_elements() * size_of(tensor.view.dtype);
        }
    }
    return bytes;
}

Result<> OperatorCall::check_outputs_given() const {
    for (const std::string& name : options_.outputs_given) {
        const TensorSpec* known = spec_->find_tensor(name);
        if (known != nullptr && !is_read(known->role)) continue;
        std::vector<TensorSpec> outputs;
        std::copy_if(spec_->tensors.begin(),
                     spec_->tensors.end(),
                     std::back_inserter(outputs),
                     [](const TensorSpec& tensor) { return !is_read(tensor.role); });
        return refuse_call(*spec_,
                           fmt::format("there is no output {}; there are {}{}",
                                       ops::excerpt(name),
                                       names_of(outputs),
                                       suggestion(name, outputs)));
    }
    return {};
}

bool OperatorCall::is_wanted(const NamedTensor& output) const {
    return std::ranges::find(options_.outputs_given, output.name) == options_.outputs_given.end();
}

Result<> OperatorCall::check_memory() const {
    uint64_t total = workspace_bytes_;
    for (const NamedTensor& output : outputs_) {
        const std::optional<uint64_t> bytes = bytes_of_shape(output.view);
        const uint64_t counted = is_wanted(output) ? bytes.value_or(0) : 0;
        if (!bytes || __builtin_add_overflow(total, counted, &total)) {
            const SizeSources sources(*spec_, tensors_, attributes_);
            const std::string_view source = sources.of_output(output);
            return refuse_call(*spec_,
                               fmt::format("{}{} would have shape {}; no memory is as large",
                                           source.empty() ? "" : sources.text(source) + "; ",
                                           output.name,
                                           ops::shape_text(output.view)));
        }
    }
    const uint64_t most = options_.memory_max > 0 ? options_.memory_max : available_memory(total);
    if (total <= most) return {};
    std::string parts = fmt::format("workspace {}", workspace_bytes_);
    for (const NamedTensor& output : outputs_) {
        if (!is_wanted(output)) continue;
        parts += fmt::format(
            ", {} {} {}", output.name, ops::shape_text(output.view), *bytes_of_shape(output.view));
    }
    const std::string limit = options_.memory_max > 0 ? fmt::format("memory_max is {}", most)
                                                      : fmt::format("{} are available", most);
    return Error{Code::kResourceExhausted,
                 fmt::format("{}: {}outputs and workspace need {} bytes ({}); {}",
                             spec_->name,
                             largest_source(),
                             total,
                             parts,
                             limit)};
}

// "expert_num is 4; " of the largest part that has a source.
std::string OperatorCall::largest_source() const {
    const SizeSources sources(*spec_, tensors_, attributes_);
    uint64_t most = workspace_bytes_;
    std::string_view source = sources.largest_of(workspace_sources_);
    for (const NamedTensor& output : outputs_) {
        if (!is_wanted(output)) continue;
        const uint64_t bytes = *bytes_of_shape(output.view);
        const std::string_view its = sources.of_output(output);
        if (its.empty() || (bytes <= most && !source.empty())) continue;
        most = bytes;
        source = its;
    }
    return source.empty() ? "" : sources.text(source) + "; ";
}

Result<> OperatorCall::run(std::span<void* const> memory, std::span<std::byte> workspace) {
    AFD_ASSERT(memory.size() == outputs_.size(), "memory of %zu outputs", memory.size());
    AFD_ASSERT(workspace.size() >= workspace_bytes_, "workspace of %zu bytes", workspace.size());
    AFD_TRY(check_memory_of_outputs(*spec_, tensors_, outputs_, memory));
    for (size_t i = 0; i < memory.size(); ++i) targets_[i]->data = memory[i];
    return options_.is_reference ? reference_() : fast_(workspace);
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

TensorView OperatorCall::given(std::string_view name) const {
    const auto found = std::find_if(tensors_.begin(),
                                    tensors_.end(),
                                    [&](const NamedTensor& entry) { return entry.name == name; });
    return found == tensors_.end() ? TensorView() : found->view;
}

}  // namespace afd::calls
