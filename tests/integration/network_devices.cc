// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/network_devices.h"

#include <unistd.h>

#include "tests/integration/instance.h"

namespace afd::test {

bool run_ip(const std::vector<std::string>& arguments, const std::vector<std::string>& before) {
    std::vector<std::string> command = before;
    command.insert(command.end(), {"/bin/sh", "-c", "exec ip \"$@\" 2>/dev/null", "ip"});
    command.insert(command.end(), arguments.begin(), arguments.end());
    return run_program(command, make_directory()).exit_status == 0;
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
