// SPDX-License-Identifier: Apache-2.0
#pragma once

// The network devices of this host, as far as they are up, and the addresses that they have.

#include <map>
#include <set>
#include <string>

namespace afd::daemon {

// Name -> addresses, as the kernel writes them. Empty: the kernel does not tell.
using NetworkDevices = std::map<std::string, std::set<std::string>>;

NetworkDevices network_devices();

// The name of the device that has the address; empty: none has. Every address of 127.0.0.0/8 is
// the loopback device's.
std::string device_with(const NetworkDevices& devices, const std::string& host);

}  // namespace afd::daemon
