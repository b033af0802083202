// SPDX-License-Identifier: Apache-2.0
#pragma once

// PortRange: ports that a firewall lets through, as a user writes them: "7420-7499".

#include <cstdint>
#include <string>

#include "proto/status.h"

namespace afd::daemon {

struct PortRange {
    uint16_t first = 0;  // 0: any that is free.
    uint16_t last = 0;
};

// Empty: any. Errors: kInvalidArgument naming what is allowed.
Result<PortRange> parse_port_range(const std::string& text);

// For an option. Errors: as parse_port_range().
Result<> check_port_range(const std::string& value);

}  // namespace afd::daemon
