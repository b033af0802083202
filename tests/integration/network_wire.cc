// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/network_wire.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>

#include "tests/integration/instance.h"

namespace afd::test {
namespace {

// `before`: a command that runs another, which is to run it.
bool run_ip(const std::vector<std::string>& arguments,
            const std::vector<std::string>& before = {}) {
    std::vector<std::string> command = before;
    command.insert(command.end(), {"/bin/sh", "-c", "exec ip \"$@\" 2>/dev/null", "ip"});
    command.insert(command.end(), arguments.begin(), arguments.end());
    return run_program(command, make_directory()).exit_status == 0;
}

}  // namespace

NetworkWire::NetworkWire(const std::optional<LinkConditions>& conditions)
    : name_("afd" + std::to_string(getpid())),
      device_("afdl" + std::to_string(getpid())),
      there_("afdh" + std::to_string(getpid())) {
    is_there_ = run_ip({"netns", "add", name_}) && make_devices(conditions) &&
                run_ip({"link", "set", there_, "netns", name_}) &&
                run_ip({"addr", "add", address() + "/30", "dev", device_}) &&
                run_ip({"link", "set", device_, "up"}) &&
                run_ip({"link", "set", there_, "name", device_}, in_namespace()) &&
                run_ip({"addr", "add", host_address() + "/30", "dev", device_}, in_namespace()) &&
                run_ip({"link", "set", device_, "up"}, in_namespace()) &&
                run_ip({"link", "set", "lo", "up"}, in_namespace());
}

NetworkWire::~NetworkWire() {
    run_ip({"link", "del", device_});
    run_ip({"netns", "del", name_});
}

bool NetworkWire::make_devices(const std::optional<LinkConditions>& conditions) {
    if (!conditions) {
        return run_ip({"link", "add", device_, "type", "veth", "peer", "name", there_});
    }
    emulator_ = std::make_unique<LinkEmulator>(std::array{device_, there_}, *conditions);
    return emulator_->ok();
}

// 198.18.0.0/15 is for tests, and nobody routes it (RFC 2544). Four addresses for each process:
// others may run beside this one.
std::string NetworkWire::address_of(uint32_t place) {
    const uint32_t offset = static_cast<uint32_t>(getpid()) % (1U << 15) * 4 + place;
    return "198." + std::to_string(18 + (offset >> 16)) + "." + std::to_string(offset >> 8 & 0xff) +
           "." + std::to_string(offset & 0xff);
}

void NetworkWire::cut_for(std::chrono::milliseconds time) const {
    ASSERT_TRUE(run_ip({"link", "set", device_, "down"}));
    std::this_thread::sleep_for(time);
    ASSERT_TRUE(run_ip({"link", "set", device_, "up"}));
}

}  // namespace afd::test
