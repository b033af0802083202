// SPDX-License-Identifier: Apache-2.0
#pragma once

// RequestMember: which member of an operator's request an attribute or a tensor of its record is.
//
//   bind<&MoeInitRoutingV3Request::quant_mode>()
//
// A record whose entries are bound says everything that stands between a name and a request: its
// check reads the request by it (operator_check.h), and whoever calls operators by name fills the
// request by it (calls/).

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include "ops/tensor/tensor_view.h"

namespace afd::schedule {
struct ScheduleContext;
}

namespace afd::ops {

enum class MemberType : uint8_t {
    kInt,         // int64_t
    kFloat,       // float
    kBool,        // bool
    kInts,        // std::span<const int64_t>
    kString,      // std::string_view
    kInput,       // ConstTensorView
    kTensor,      // TensorView
    kContext,     // schedule::ScheduleContext*, const or not; the tensor is its 1024 bytes
    kBytes,       // std::span<std::byte>; the tensor is uint8 [size]
    kConstBytes,  // std::span<const std::byte>, likewise
    kWindows,     // std::span<const std::span<std::byte>>; the tensor is uint8 [workers, size]
};

struct RequestMember {
    MemberType type;
    // The member's address; null: the operator has no such member and takes the value otherwise.
    void* (*of)(void* request);
};

template <typename T>
constexpr MemberType member_type() {
    using Context = schedule::ScheduleContext;
    if constexpr (std::is_same_v<T, int64_t>) return MemberType::kInt;
    if constexpr (std::is_same_v<T, float>) return MemberType::kFloat;
    if constexpr (std::is_same_v<T, bool>) return MemberType::kBool;
    if constexpr (std::is_same_v<T, std::span<const int64_t>>) return MemberType::kInts;
    if constexpr (std::is_same_v<T, std::string_view>) return MemberType::kString;
    if constexpr (std::is_same_v<T, ConstTensorView>) return MemberType::kInput;
    if constexpr (std::is_same_v<T, TensorView>) return MemberType::kTensor;
    if constexpr (std::is_same_v<T, Context*> || std::is_same_v<T, const Context*>) {
        return MemberType::kContext;
    }
    if constexpr (std::is_same_v<T, std::span<std::byte>>) return MemberType::kBytes;
    if constexpr (std::is_same_v<T, std::span<const std::byte>>) return MemberType::kConstBytes;
    if constexpr (std::is_same_v<T, std::span<const std::span<std::byte>>>) {
        return MemberType::kWindows;
    }
}

template <typename Request, auto kMember>
constexpr RequestMember bind() {
    using Member = std::remove_reference_t<decltype(std::declval<Request&>().*kMember)>;
    return {member_type<Member>(), [](void* request) -> void* {
                return const_cast<std::remove_const_t<Member>*>(
                    &(static_cast<Request*>(request)->*kMember));
            }};
}

template <typename Member>
struct ClassOf;
template <typename Request, typename T>
struct ClassOf<T Request::*> {
    using Type = Request;
};

// A member that the request's own struct declares; of one of its bases: bind<Request, kMember>().
template <auto kMember>
constexpr RequestMember bind() {
    return bind<typename ClassOf<decltype(kMember)>::Type, kMember>();
}

// No member: the operator takes the value by other means.
constexpr RequestMember unbound(MemberType type) {
    return {type, nullptr};
}

}  // namespace afd::ops
