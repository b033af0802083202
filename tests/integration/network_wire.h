// SPDX-License-Identifier: Apache-2.0
#pragma once

// NetworkWire: two ends of one wire, the leader's here, the host's in a network namespace of its
// own. By itself a pair of devices (veth), which is as fast as memory; with conditions, a link that
// is emulated (link_emulator.h). Needs what network_devices.h needs.

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/integration/network_devices.h"
#include "tools/afd-link/link_emulator.h"

namespace afd::test {

class NetworkWire {
  public:
    explicit NetworkWire(const std::optional<LinkConditions>& conditions = {});
    // The namespace and its devices go with it.
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
    // Null: nothing is emulated.
    const LinkEmulator* emulator() const { return emulator_.get(); }

    // Takes the leader's end down, waits, and takes it up again.
    void cut_for(std::chrono::milliseconds time) const;

  private:
    bool make_devices(const std::optional<LinkConditions>& conditions);

    const std::string name_;
    const std::string device_;
    const std::string there_;  // The host's end, until it is there.
    std::unique_ptr<LinkEmulator> emulator_;
    bool is_there_ = false;
};

}  // namespace afd::test
