// SPDX-License-Identifier: Apache-2.0
#pragma once

// OriginList: the web pages of other sites that may use the HTTP API from their visitors' browsers.
// An origin is what a browser says in the header of that name: https://chat.example,
// http://localhost:3000.

#include <string>
#include <string_view>
#include <vector>

#include "proto/status.h"

namespace afd::daemon {

class OriginList {
  public:
    OriginList() = default;

    // Origins with commas between, or "*" for any; empty: none. Errors: kInvalidArgument: one is no
    // origin; the message fits behind an option's name and value.
    static Result<OriginList> parse(std::string_view text);

    bool has(std::string_view origin) const;

  private:
    bool has_any_ = false;
    std::vector<std::string> origins_;  // In small letters.
};

}  // namespace afd::daemon
