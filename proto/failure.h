// SPDX-License-Identifier: Apache-2.0
#pragma once

// Errors whose message is one sentence with a place, {}, for each value, in the syntax of fmt:
//
//   return invalid_argument("positions[{}] is {}; it must not be negative", with(t, position));
//
// The compiler checks that text and values fit together. A float or double is written {:f}, with
// six decimals. A source that includes this may call fmt::format too. It is not part of status.h,
// which the client library installs: whoever uses that library need not have fmt.

#include <fmt/core.h>

#include "proto/status.h"

namespace afd {

template <typename... Values>
using Text = fmt::format_string<Values...>;

template <typename... Values>
using With = fmt::format_arg_store<fmt::format_context, Values...>;

// The values of a text, in its order; they are read before the statement ends and not later. One
// argument, so that a long text leaves them on one line.
template <typename... Values>
With<Values...> with(const Values&... values) {
    return fmt::make_format_args(values...);
}

template <Code code>
struct Failure {
    template <typename... Values>
    Error operator()(Text<Values...> text, const With<Values...>& values = {}) const {
        return Error{code, fmt::vformat(text, values)};
    }
};

inline constexpr Failure<Code::kInvalidArgument> invalid_argument;
inline constexpr Failure<Code::kNotFound> not_found;
inline constexpr Failure<Code::kAlreadyExists> already_exists;
inline constexpr Failure<Code::kPermissionDenied> permission_denied;
inline constexpr Failure<Code::kResourceExhausted> resource_exhausted;
inline constexpr Failure<Code::kFailedPrecondition> failed_precondition;
inline constexpr Failure<Code::kUnavailable> unavailable;
inline constexpr Failure<Code::kDeadlineExceeded> deadline_exceeded;
inline constexpr Failure<Code::kCancelled> cancelled;
inline constexpr Failure<Code::kDataLoss> data_loss;
inline constexpr Failure<Code::kInternal> internal;
inline constexpr Failure<Code::kUnimplemented> unimplemented;

}  // namespace afd
