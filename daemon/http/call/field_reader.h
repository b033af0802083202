// SPDX-License-Identifier: Apache-2.0
#pragma once

// FieldReader: the fields of one JSON object of a client, by name and type. It keeps the first
// problem, and after it every field reads as absent, so that a caller asks once at the end. A field
// that is null is absent. What nobody asked for is unknown().

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/http/message/api_error.h"

namespace afd::daemon {

class FieldReader {
  public:
    // `object` outlives this. `path`: what goes before the names in errors, "messages[2].". A value
    // that is no object is the first problem.
    explicit FieldReader(const nlohmann::json& object, std::string path = "");

    std::optional<bool> boolean(const char* name);
    // REQUIRES: min <= max.
    std::optional<int64_t> integer(const char* name, int64_t min, int64_t max);
    // The 64 bits of an integer, with a sign or without one.
    std::optional<uint64_t> bits(const char* name);
    std::optional<double> number(const char* name);
    std::optional<std::string> text(const char* name);
    // Of any type; null: absent.
    const nlohmann::json* any(const char* name);

    // Known and without effect here, as `user`.
    void ignore(const char* name) { known_.insert(name); }
    // A problem of the caller's finding, about a field by its whole name.
    void fail(ApiError error);
    // The name of a field, for fail().
    std::string path_of(const std::string& name) const { return path_ + name; }

    const std::optional<ApiError>& error() const { return error_; }
    // Whole names of the fields that nobody asked for, in the order of the alphabet; behind them
    // those of objects within this one. One that is null asks for nothing: clients send every field
    // that they know.
    std::vector<std::string> unknown() const;
    // `inner` is of an object within this one.
    void add_unknown(const FieldReader& inner);

  private:
    const nlohmann::json* typed(const char* name, bool is_right, const char* type);

    const nlohmann::json& object_;
    const std::string path_;
    std::set<std::string, std::less<>> known_;
    std::vector<std::string> unknown_within_;
    std::optional<ApiError> error_;
};

// What a value is, for messages: "a string", "an array".
std::string_view type_of(const nlohmann::json& value);

// The JSON object that a request has in its body. Errors: 400.
ApiResult<nlohmann::json> parse_body(std::string_view body);

}  // namespace afd::daemon
