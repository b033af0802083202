// SPDX-License-Identifier: Apache-2.0
#pragma once

// NetworkWire: a link (network_link.h) between the leader, which is here, and a host in a network
// namespace of its own.

#include <optional>
#include <string>
#include <vector>

#include "tests/integration/network_devices.h"
#include "tests/integration/network_link.h"

namespace afd::test {

class NetworkWire {
  public:
    explicit NetworkWire(const std::optional<tools::LinkConditions>& conditions = {});
    // The namespace goes with it.
    ~NetworkWire();
    NetworkWire(const NetworkWire&) = delete;
    NetworkWire& operator=(const NetworkWire&) = delete;

    bool is_there() const { return is_there_; }
    // IPv4, of the leader's end and of the host's.
    std::string address() const { return address_of_test(1); }
    std::string host_address() const { return address_of_test(2); }
    // One name at either end: UCX looks for devices in /sys, which is that of the leader's side.
    const std::string& device() const { return device_; }
    std::vector<std::string> in_namespace() const { return inside_namespace(name_); }
    // Of the leader, which has certificates there and listens for hosts at its end.
    std::vector<std::string> leader_flags(const std::string& certificates) const {
        return network_leader_flags(address(), certificates);
    }
    const NetworkLink& link() const { return link_; }

  private:
    const std::string name_;
    const std::string device_;
    NetworkLink link_;
    bool is_there_ = false;
};

}  // namespace afd::test
