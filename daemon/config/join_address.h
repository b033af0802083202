// SPDX-License-Identifier: Apache-2.0
#pragma once

// JoinAddress: where a host finds the afdd that leads, as a user writes it: "10.0.0.1:7411",
// "[fd00::1]:7411", "node1.example.org:7411". Unlike a ListenAddress it may be a name: what that
// means is asked for at each attempt to connect, since it may be another machine by then.

#include <cstdint>
#include <string>

#include "proto/status.h"

namespace afd::daemon {

struct JoinAddress {
    std::string host;  // A name, or numbers; of IPv6 without brackets.
    uint16_t port = 0;
    bool is_name = false;

    // As it is written: "node1:7411", "[fd00::1]:7411".
    std::string text() const;
};

// Errors: kInvalidArgument naming what is allowed.
Result<JoinAddress> parse_join_address(const std::string& text);

// For an option that may be empty. Errors: as parse_join_address().
Result<> check_join_address(const std::string& value);

}  // namespace afd::daemon
