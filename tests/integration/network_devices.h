// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the networks of tests are made of: ip, tc, network namespaces, and addresses that nobody
// else has. Needs root, ip, tc and nsenter.

#include <cstdint>
#include <string>
#include <vector>

#include "tests/integration/instance.h"

namespace afd::test {

// Runs a program of the PATH; its errors go nowhere. `before`: a command that runs another, which
// is to run it.
Outcome run_tool(const std::vector<std::string>& command,
                 const std::vector<std::string>& before = {});

// Runs `ip` with these arguments. False: it said no.
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

// Of TCP, segments that have come before one that precedes them, in the namespace where `before`
// runs a command.
uint64_t num_out_of_order(const std::vector<std::string>& before);

// IPv4. Eight addresses for each process, 0 ... 7: others may run beside this one.
std::string address_of_test(uint32_t place);

// Flags of a leader that has certificates there, and listens for hosts at this address.
std::vector<std::string> network_leader_flags(const std::string& address,
                                              const std::string& certificates);

}  // namespace afd::test
