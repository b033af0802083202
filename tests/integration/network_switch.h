// SPDX-License-Identifier: Apache-2.0
#pragma once

// NetworkSwitch: hosts of one network, the leader here, each other one in a network namespace of
// its own, and a switch (a bridge) between all of them, to which each has a link (network_link.h).

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/integration/network_devices.h"
#include "tests/integration/network_link.h"

namespace afd::test {

class NetworkSwitch {
  public:
    static constexpr size_t kHostsMax = 5;

    // The conditions are those of each host's link. REQUIRES: kHostsMax hosts at most, without the
    // leader.
    explicit NetworkSwitch(size_t num_hosts,
                           const std::optional<tools::LinkConditions>& conditions = {});
    // The namespaces and their devices go with it.
    ~NetworkSwitch();
    NetworkSwitch(const NetworkSwitch&) = delete;
    NetworkSwitch& operator=(const NetworkSwitch&) = delete;

    bool is_there() const { return is_there_; }
    // IPv4, of the leader.
    std::string address() const { return address_of_test(1); }
    // One name everywhere, as that of a NetworkWire.
    const std::string& device() const { return device_; }
    std::vector<std::string> in_namespace(size_t host) const {
        return inside_namespace(namespace_of(host));
    }
    std::vector<std::string> leader_flags(const std::string& certificates) const {
        return network_leader_flags(address(), certificates);
    }

    const NetworkLink& link(size_t host) const { return *links_[host]; }

  private:
    std::string namespace_of(size_t host) const { return device_ + "n" + std::to_string(host); }
    std::string port_of(size_t host) const { return device_ + "p" + std::to_string(host); }
    std::string end_of(size_t host) const { return device_ + "e" + std::to_string(host); }
    bool add_host(size_t host, const std::optional<tools::LinkConditions>& conditions);

    const size_t num_hosts_;
    const std::string device_;
    std::vector<std::unique_ptr<NetworkLink>> links_;
    bool is_there_ = false;
};

}  // namespace afd::test
