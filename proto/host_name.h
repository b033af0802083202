// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the hosts of a cluster are called, in certificates and in configurations.

#include <string>
#include <string_view>

#include "proto/status.h"

namespace afd {

inline constexpr size_t kHostNameBytesMax = 63;
// The host of the afdd that leads, in certificates; in lists of hosts it is "local".
inline constexpr std::string_view kLeaderName = "leader";
inline constexpr std::string_view kLocalHost = "local";

// As a host is named what a machine or a scheduler calls it: in lower case.
inline std::string host_name_from(std::string text) {
    for (char& c : text) {
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    }
    return text;
}

// A host is named with 1 to 63 of a-z, 0-9, '.', '-' and '_'. "ca" is no host: its files are the
// CA's. Errors: kInvalidArgument.
inline Result<> check_host_name(std::string_view name) {
    bool is_good = !name.empty() && name.size() <= kHostNameBytesMax && name != "ca";
    for (const char c : name) {
        is_good = is_good && ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' ||
                              c == '-' || c == '_');
    }
    if (is_good) return {};
    return Error{Code::kInvalidArgument,
                 "'" + std::string(name) + "' is no name of a host: it has 1 to " +
                     std::to_string(kHostNameBytesMax) +
                     " of a-z, 0-9, '.', '-' and '_', and is not 'ca'"};
}

}  // namespace afd
