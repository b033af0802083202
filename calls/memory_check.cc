// SPDX-License-Identifier: Apache-2.0
#include "calls/memory_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "calls/call_attributes.h"
#include "ops/record/operator_check.h"
#include "schedule/context/schedule_context.h"

namespace afd::calls {
namespace {

using ops::DType;
using ops::MemberType;
using ops::OperatorSpec;
using ops::TensorSpec;
using ops::TensorView;

// REQUIRES: not without elements.
Result<> check_alignment(const OperatorSpec& spec,
                         const TensorSpec& known,
                         const TensorView& view,
                         std::string_view advice) {
    const size_t alignment = alignment_of(known, view.dtype);
    if (reinterpret_cast<uintptr_t>(view.data) % alignment == 0) return {};
    return refuse_call(spec,
                       fmt::format("{} begins at an address that is no multiple of {}; {}",
                                   known.name,
                                   alignment,
                                   advice));
}

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

}  // namespace

std::optional<uint64_t> bytes_of_shape(const TensorView& view) {
    uint64_t bytes = size_of(view.dtype);
    for (size_t axis = 0; axis < view.rank; ++axis) {
        if (__builtin_mul_overflow(bytes, std::max<uint64_t>(1, view.shape[axis]), &bytes)) {
            return std::nullopt;
        }
    }
    return view.num_elements() == 0 ? 0 : bytes;
}

std::span<std::byte> bytes_of(const TensorView& view) {
    return {static_cast<std::byte*>(view.data), view.num_elements() * size_of(view.dtype)};
}

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

Result<> check_given_memory(const OperatorSpec& spec,
                            const TensorSpec& known,
                            const NamedTensor& tensor) {
    const TensorView& view = tensor.view;
    if (view.rank == 0) {
        return refuse_call(
            spec,
            fmt::format("{} is a scalar; it must have the shape {}", tensor.name, known.shape));
    }
    if (!bytes_of_shape(view)) {
        return refuse_call(
            spec,
            fmt::format(
                "{} has shape {}; no memory is as large", tensor.name, ops::shape_text(view)));
    }
    if (view.num_elements() == 0) return {};
    AFD_TRY(check_alignment(spec, known, view, "copy it to aligned memory first"));
    if (view.dtype != DType::kBool || !view.is_contiguous()) return {};
    const auto* bytes = static_cast<const uint8_t*>(view.data);
    const auto* end = bytes + view.num_elements();
    const auto* found = std::find_if(bytes, end, [](uint8_t byte) { return byte > 1; });
    if (found == end) return {};
    return refuse_call(
        spec,
        fmt::format("{}[{}] is the byte {}; a bool is 0 or 1", tensor.name, found - bytes, *found));
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

// Operators read while they write, in an order of their own.
Result<> check_in_place_separate(const OperatorSpec& spec,
                                 std::span<const NamedTensor> in_place,
                                 std::span<const NamedTensor> tensors) {
    for (const NamedTensor& written : in_place) {
        const bool is_written_segment = is_segment(*spec.find_tensor(written.name));
        for (const NamedTensor& other : tensors) {
            // The same literal: itself, or another window of its list.
            if (other.name.data() == written.name.data()) continue;
            if (!share_memory(written.view, other.view)) continue;
            if (is_written_segment && is_segment(*spec.find_tensor(other.name))) continue;
            return refuse_shared(spec, written.name, other.name);
        }
    }
    return {};
}

Result<> check_memory_of_outputs(const OperatorSpec& spec,
                                 std::span<const NamedTensor> tensors,
                                 std::span<const NamedTensor> outputs,
                                 std::span<void* const> memory) {
    const auto refuse = [&](size_t output, std::string_view other) {
        return refuse_shared(spec, outputs[output].name, other);
    };
    const auto output_at = [&](size_t i) {
        TensorView view = outputs[i].view;
        view.data = memory[i];
        return view;
    };
    for (size_t i = 0; i < outputs.size(); ++i) {
        if (outputs[i].view.num_elements() == 0) continue;
        AFD_TRY(check_alignment(
            spec, *spec.find_tensor(outputs[i].name), output_at(i), "give it aligned memory"));
        for (const NamedTensor& tensor : tensors) {
            if (share_memory(output_at(i), tensor.view)) return refuse(i, tensor.name);
        }
        for (size_t j = 0; j < i; ++j) {
            if (share_memory(output_at(i), output_at(j))) return refuse(i, outputs[j].name);
        }
    }
    return {};
}

}  // namespace afd::calls
