// SPDX-License-Identifier: Apache-2.0
#pragma once

// ApiKeys: who may use the HTTP API. Keys come from a file, or one from the environment; without
// any everybody is served who reaches the address.
//
// The file has one key a line, or "NAME KEY" to tell them apart in logs; a line that begins with #
// is a comment. It must be a regular file that only its owner can read. A key is 16 characters or
// more, without spaces; it is never logged.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "proto/status.h"

namespace afd::daemon {

class ApiKeys {
  public:
    static constexpr size_t kKeyBytesMin = 16;

    ApiKeys() = default;

    // `file` empty: `environment_key`, which may be empty too.
    // Errors: kNotFound, kPermissionDenied, kInvalidArgument naming file and line, not the key;
    // kDataLoss: no regular file, too long; kUnavailable: it cannot be read for another reason.
    static Result<ApiKeys> load(const std::string& file, std::string_view environment_key);

    bool empty() const { return keys_.empty(); }

    // The name of the key in an Authorization header, "Bearer KEY"; nothing: it is none of them.
    // Takes as long for a wrong key as for a right one.
    std::optional<std::string> name_of(std::string_view authorization) const;

  private:
    struct Key {
        std::string name;
        std::string key;
    };

    Result<> add(std::string name, std::string_view key, const std::string& where);

    std::vector<Key> keys_;
};

}  // namespace afd::daemon
