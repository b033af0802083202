// SPDX-License-Identifier: Apache-2.0
#pragma once

// Result<T>: a value, or an Error with a canonical code and one clear line.
//
// For failures of the world (a missing file, a full /dev/shm, a peer's bad bytes). A bug of ours
// is AFD_ASSERT (proto/check.h); normal emptiness is std::optional or bool. Nothing here throws.
// The codes are the same numbers on the wire (client.proto, control.proto), in C++ and in logs.

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "proto/check.h"

namespace afd {

enum class Code : int {
    kOk = 0,
    kInvalidArgument = 1,     // The request or file is wrong; retrying cannot help.
    kNotFound = 2,            // A named thing does not exist.
    kAlreadyExists = 3,       // A name is taken (instance, socket, segment).
    kResourceExhausted = 4,   // Out of memory, /dev/shm, queue places; retrying later can help.
    kFailedPrecondition = 5,  // Right request, wrong state (draining, geometry mismatch).
    kUnavailable = 6,         // A peer is gone; retrying can help.
    kDeadlineExceeded = 7,    // A wait came to its end (R7).
    kCancelled = 8,           // The client cancelled.
    kDataLoss = 9,            // Bytes of a file or a peer fail validation.
    kPermissionDenied = 10,   // The kernel refused.
    kInternal = 11,           // A bug of ours that was contained.
    kUnimplemented = 12,      // A valid wish that this version does not serve.
};

constexpr std::string_view code_name(Code code) {
    switch (code) {
        case Code::kOk:
            return "ok";
        case Code::kInvalidArgument:
            return "invalid argument";
        case Code::kNotFound:
            return "not found";
        case Code::kAlreadyExists:
            return "already exists";
        case Code::kResourceExhausted:
            return "resource exhausted";
        case Code::kFailedPrecondition:
            return "failed precondition";
        case Code::kUnavailable:
            return "unavailable";
        case Code::kDeadlineExceeded:
            return "deadline exceeded";
        case Code::kCancelled:
            return "cancelled";
        case Code::kDataLoss:
            return "data loss";
        case Code::kPermissionDenied:
            return "permission denied";
        case Code::kInternal:
            return "internal";
        case Code::kUnimplemented:
            return "unimplemented";
    }
    return "unknown";
}

// What went wrong, why and how to mend it, in one line without a trailing full stop.
struct Error {
    Code code = Code::kInternal;
    std::string message;
};

template <typename T = void>
class [[nodiscard]] Result {
  public:
    Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
    Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

    bool ok() const { return state_.index() == 0; }

    // REQUIRES: ok().
    T& value() & {
        AFD_ASSERT(ok(), "%s", error_text());
        return *std::get_if<0>(&state_);
    }
    const T& value() const& {
        AFD_ASSERT(ok(), "%s", error_text());
        return *std::get_if<0>(&state_);
    }
    T&& value() && {
        AFD_ASSERT(ok(), "%s", error_text());
        return std::move(*std::get_if<0>(&state_));
    }

    // REQUIRES: !ok().
    const Error& error() const {
        AFD_ASSERT(!ok(), "error() of a result that holds a value");
        return *std::get_if<1>(&state_);
    }

  private:
    const char* error_text() const { return ok() ? "" : std::get_if<1>(&state_)->message.c_str(); }

    std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
  public:
    Result() = default;
    Result(Error error) : error_(std::move(error)) {}

    bool ok() const { return !error_.has_value(); }

    // REQUIRES: !ok().
    const Error& error() const {
        AFD_ASSERT(!ok(), "error() of a result that is ok");
        return *error_;
    }

  private:
    std::optional<Error> error_;
};

}  // namespace afd

#define AFD_CONCAT_INNER(a, b) a##b
#define AFD_CONCAT(a, b) AFD_CONCAT_INNER(a, b)

// Returns the error of `expression`, a Result<>, from the enclosing function.
#define AFD_TRY(expression)                                     \
    do {                                                        \
        if (auto afd_result = (expression); !afd_result.ok()) { \
            return afd_result.error();                          \
        }                                                       \
    } while (false)

// Declares or assigns `target` from the value of `expression`, or returns its error.
#define AFD_ASSIGN(target, expression) \
    AFD_ASSIGN_INNER(AFD_CONCAT(afd_result_, __LINE__), target, expression)
#define AFD_ASSIGN_INNER(result, target, expression) \
    auto result = (expression);                      \
    if (!result.ok()) return result.error();         \
    target = std::move(result).value()
