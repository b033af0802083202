// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/network_wire.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>

namespace afd::test {

NetworkWire::NetworkWire(const std::optional<LinkConditions>& conditions)
    : name_("afd" + std::to_string(getpid())),
      device_("afdl" + std::to_string(getpid())),
      there_("afdh" + std::to_string(getpid())) {
    is_there_ = run_ip({"netns", "add", name_}) && make_devices(conditions) &&
                run_ip({"addr", "add", address() + "/30", "dev", device_}) &&
                run_ip({"link", "set", device_, "up"}) &&
                move_device(there_, name_, device_, host_address() + "/30");
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

void NetworkWire::cut_for(std::chrono::milliseconds time) const {
    ASSERT_TRUE(run_ip({"link", "set", device_, "down"}));
    std::this_thread::sleep_for(time);
    ASSERT_TRUE(run_ip({"link", "set", device_, "up"}));
}

}  // namespace afd::test
