// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the networks of tests are made of: ip, network namespaces, and addresses that nobody else
// has. Needs root, ip and nsenter.

#include <cstdint>
#include <string>
#include <vector>

namespace afd::test {

// Runs `ip` with these arguments; `before`: a command that runs another, which is to run it. False:
// it said no.
bool run_ip(const std::vector<std::string>& arguments, const std::vector<std::string>& before = {});

// A command that runs another, in that namespace. Neither `ip netns exec` nor `ip -n`, which mount
// a /sys of their own and fail under a root that is no mount.
std::vector<std::string> inside_namespace(const std::string& name);

// Names the end `device` of a pair of devices `name` in that namespace, gives it the address (with
// the bits of its network) and takes it up.
bool move_device(const std::string& device,
                 const std::string& name_space,
                 const std::string& name,
                 const std::string& address);

// IPv4. Eight addresses for each process, 0 ... 7: others may run beside this one.
std::string address_of_test(uint32_t place);

// Flags of a leader that has certificates there, and listens for hosts at this address.
std::vector<std::string> network_leader_flags(const std::string& address,
                                              const std::string& certificates);

}  // namespace afd::test
