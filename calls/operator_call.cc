// SPDX-License-Identifier: Apache-2.0
#include "calls/operator_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "calls/available_memory.h"
#include "calls/call_attributes.h"
#include "calls/name_list.h"
#include "calls/size_source.h"
#include "ops/record/operator_check.h"
#include "schedule/context/schedule_context.h"
#include "schedule/layout/geometry.h"

namespace afd::calls {
namespace {

using ops::AttributeSpec;
using ops::DType;
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

// Nothing if 64 bits do not hold it. An axis of length 0 hides no overflow of the others.
std::optional<uint64_t> bytes_of_shape(const TensorView& view) {
    uint64_t bytes = size_of(view.dtype);
    for (size_t axis = 0; axis < view.rank; ++axis) {
        if (__builtin_mul_overflow(bytes, std::max<uint64_t>(1, view.shape[axis]), &bytes)) {
            return std::nullopt;
        }
    }
    return view.num_elements() == 0 ? 0 : bytes;
}

// What memory is read as: segments and windows, which are bytes, hold int32 flags and lists.
size_t alignment_of(const TensorSpec& tensor, DType dtype) {
    switch (tensor.member.type) {
        case MemberType::kContext:
            return alignof(schedule::ScheduleContext);
        case MemberType::kBytes:
        case MemberType::kConstBytes:
        case MemberType::kWindows:
            return alignof(int32_t);
        default:
            return size_of(dtype);
    }
}

// REQUIRES: not without elements.
Result<> check_alignment(const OperatorSpec& spec,
                         const TensorSpec& known,
                         const TensorView& view) {
    const size_t alignment = alignment_of(known, view.dtype);
    if (reinterpret_cast<uintptr_t>(view.data) % alignment == 0) return {};
    return refuse_call(spec,
                       fmt::format("{} begins at an address that is no multiple of {}; {}",
                                   known.name,
                                   alignment,
                                   is_read(known.role) ? "copy it to aligned memory first"
                                                       : "give it aligned memory"));
}

// What no operator looks at: memory that a pointer of what is in it must not be read from, and
// bytes that are no bool.
Result<> check_memory_of(const OperatorSpec& spec,
                         const TensorSpec& known,
                         const NamedTensor& tensor) {
    const TensorView& view = tensor.view;
    if (view.rank == 0) {
        return refuse_call(spec,
                           fmt::format("{} is a scalar; it must have the shape {}",
                                       tensor.name,
                                       spec.find_tensor(tensor.name)->shape));
    }
    if (!bytes_of_shape(view)) {
        return refuse_call(
            spec,
            fmt::format(
                "{} has shape {}; no memory is as large", tensor.name, ops::shape_text(view)));
    }
    if (view.num_elements() == 0) return {};
    AFD_TRY(check_alignment(spec, known, view));
    if (view.dtype != DType::kBool || !view.is_contiguous()) return {};
    const auto* bytes = static_cast<const uint8_t*>(view.data);
    const auto* end = bytes + view.num_elements();
    const auto* found = std::find_if(bytes, end, [](uint8_t byte) { return byte > 1; });
    if (found == end) return {};
    return refuse_call(
        spec,
        fmt::format("{}[{}] is the byte {}; a bool is 0 or 1", tensor.name, found - bytes, *found));
}

template <typename T>
T& member(const ops::RequestMember& bound, void* request) {
    return *static_cast<T*>(bound.of(request));
}

std::span<std::byte> bytes_of(const TensorView& view) {
    return {static_cast<std::byte*>(view.data), view.num_elements() * size_of(view.dtype)};
}

// REQUIRES: both are contiguous, as every tensor is that an operator takes.
bool share_memory(const TensorView& a, const TensorView& b) {
    const auto begin_of = [](const TensorView& view) {
        return reinterpret_cast<uintptr_t>(view.data);
    };
    const auto end_of = [&](const TensorView& view) {
        return begin_of(view) + bytes_of(view).size();
    };
    const bool is_any_empty = a.num_elements() == 0 || b.num_elements() == 0;
    return !is_any_empty && begin_of(a) < end_of(b) && begin_of(b) < end_of(a);
}

Error refuse_shared(const OperatorSpec& spec, std::string_view name, std::string_view other) {
    return refuse_call(
        spec, fmt::format("{} shares memory with {}; give it memory of its own", name, other));
}

// Whether an operator goes to places in it by offsets that the caller knows: such memory may lie
// in one segment, and a context at the start of its control segment.
bool is_segment(const TensorSpec& tensor) {
    switch (tensor.member.type) {
        case MemberType::kContext:
        case MemberType::kBytes:
        case MemberType::kConstBytes:
        case MemberType::kWindows:
            return true;
        default:
            return false;
    }
}

// In memory that two workers have, each would write over the other's rows.
Result<> check_windows_separate(const OperatorSpec& spec,
                                std::string_view name,
                                std::span<const std::span<std::byte>> windows) {
    const auto begin_of = [&](size_t i) { return reinterpret_cast<uintptr_t>(windows[i].data()); };
    std::vector<size_t> order;
    for (size_t i = 0; i < windows.size(); ++i) {
        if (!windows[i].empty()) order.push_back(i);
    }
    std::ranges::sort(order, {}, [&](size_t i) { return std::pair(begin_of(i), i); });
    for (size_t i = 1; i < order.size(); ++i) {
        const size_t before = order[i - 1];
        const size_t behind = order[i];
        if (begin_of(before) + windows[before].size() <= begin_of(behind)) continue;
        return refuse_shared(spec,
                             fmt::format("{}[{}]", name, std::max(before, behind)),
                             fmt::format("{}[{}]", name, std::min(before, behind)));
    }
    return {};
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
    AFD_TRY(call->check_in_place_separate());
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
        AFD_TRY(check_memory_of(*spec_, *known, tensor));
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

// Operators read while they write, in an order of their own.
Result<> OperatorCall::check_in_place_separate() const {
    for (const NamedTensor& written : in_place_) {
        const bool is_written_segment = is_segment(*spec_->find_tensor(written.name));
        for (const NamedTensor& other : tensors_) {
            // The same literal: itself, or another window of its list.
            if (other.name.data() == written.name.data()) continue;
            if (!share_memory(written.view, other.view)) continue;
            if (is_written_segment && is_segment(*spec_->find_tensor(other.name))) continue;
            return refuse_shared(*spec_, written.name, other.name);
        }
    }
    return {};
}

Result<> OperatorCall::check_memory_of_outputs(std::span<void* const> memory) const {
    const auto refuse = [&](size_t output, std::string_view other) {
        return refuse_shared(*spec_, outputs_[output].name, other);
    };
    const auto output_at = [&](size_t i) {
        TensorView view = outputs_[i].view;
        view.data = memory[i];
        return view;
    };
    for (size_t i = 0; i < outputs_.size(); ++i) {
        if (outputs_[i].view.num_elements() == 0) continue;
        AFD_TRY(check_alignment(*spec_, *spec_->find_tensor(outputs_[i].name), output_at(i)));
        for (const NamedTensor& tensor : tensors_) {
            if (share_memory(output_at(i), tensor.view)) return refuse(i, tensor.name);
        }
        for (size_t j = 0; j < i; ++j) {
            if (share_memory(output_at(i), output_at(j))) return refuse(i, outputs_[j].name);
        }
    }
    return {};
}

Result<> OperatorCall::run(std::span<void* const> memory, std::span<std::byte> workspace) {
    AFD_ASSERT(memory.size() == outputs_.size(), "memory of %zu outputs", memory.size());
    AFD_ASSERT(workspace.size() >= workspace_bytes_, "workspace of %zu bytes", workspace.size());
    AFD_TRY(check_memory_of_outputs(memory));
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
