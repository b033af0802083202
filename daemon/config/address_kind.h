// SPDX-License-Identifier: Apache-2.0
#pragma once

// AddressKind: whom the numeric address of a host reaches.

#include <optional>
#include <string>

namespace afd::daemon {

enum class AddressKind {
    kLoopback,   // This machine alone: 127.0.0.1, ::1.
    kAny,        // To listen at, every address of this host: 0.0.0.0, ::.
    kMulticast,  // A group of hosts.
    kUnicast,    // One host.
};

// Nothing: `host` is no numeric address of IPv4 or IPv6 (without brackets).
std::optional<AddressKind> kind_of_address(const std::string& host);

inline bool is_loopback_host(const std::string& host) {
    return kind_of_address(host) == AddressKind::kLoopback;
}

// The same address as the kernel writes it: "fd00:0::1" is "fd00::1". Of anything else itself.
std::string canonical_address(const std::string& host);

}  // namespace afd::daemon
