// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/network_devices.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <sstream>

namespace afd::test {

Outcome run_tool(const std::vector<std::string>& command, const std::vector<std::string>& before) {
    std::vector<std::string> all = before;
    all.insert(all.end(), {"/bin/sh", "-c", "exec \"$@\" 2>/dev/null", "sh"});
    all.insert(all.end(), command.begin(), command.end());
    return run_program(all, make_directory());
}

bool run_ip(const std::vector<std::string>& arguments, const std::vector<std::string>& before) {
    std::vector<std::string> command = {"ip"};
    command.insert(command.end(), arguments.begin(), arguments.end());
    return run_tool(command, before).exit_status == 0;
}

std::vector<std::string> inside_namespace(const std::string& name) {
    return {"/usr/bin/nsenter", "--net=/run/netns/" + name};
}

bool move_device(const std::string& device,
                 const std::string& name_space,
                 const std::string& name,
                 const std::string& address) {
    const std::vector<std::string> there = inside_namespace(name_space);
    return run_ip({"link", "set", device, "netns", name_space}) &&
           run_ip({"link", "set", device, "name", name}, there) &&
           run_ip({"addr", "add", address, "dev", name}, there) &&
           run_ip({"link", "set", name, "up"}, there) && run_ip({"link", "set", "lo", "up"}, there);
}

// Two lines of /proc/net/netstat begin with TcpExt: names, and their values in the same order.
uint64_t num_out_of_order(const std::vector<std::string>& before) {
    std::istringstream lines(run_tool({"grep", "^TcpExt:", "/proc/net/netstat"}, before).output);
    std::string names;
    std::string values;
    std::getline(lines, names);
    std::getline(lines, values);
    std::istringstream name_words(names);
    std::istringstream value_words(values);
    std::string name;
    std::string value;
    while (name_words >> name && value_words >> value) {
        if (name == "TCPOFOQueue") return std::stoull(value);
    }
    ADD_FAILURE() << "the kernel counts no segments that come out of order:\n" << names;
    return 0;
}

// 198.18.0.0/15 is for tests, and nobody routes it (RFC 2544).
std::string address_of_test(uint32_t place) {
    const uint32_t offset = static_cast<uint32_t>(getpid()) % (1U << 14) * 8 + place;
    return "198." + std::to_string(18 + (offset >> 16)) + "." + std::to_string(offset >> 8 & 0xff) +
           "." + std::to_string(offset & 0xff);
}

std::vector<std::string> network_leader_flags(const std::string& address,
                                              const std::string& certificates) {
    return {
        "--transport", "ucx", "--cluster-listen", address + ":0", "--cluster-dir", certificates};
}

}  // namespace afd::test
