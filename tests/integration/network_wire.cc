// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/network_wire.h"

#include <unistd.h>

namespace afd::test {

NetworkWire::NetworkWire(const std::optional<tools::LinkConditions>& conditions)
    : name_("afd" + std::to_string(getpid())),
      device_("afdl" + std::to_string(getpid())),
      link_(device_, "afdh" + std::to_string(getpid()), conditions) {
    is_there_ = run_ip({"netns", "add", name_}) &&
                run_ip({"addr", "add", address() + "/30", "dev", device_}) &&
                link_.move_far(name_, device_, host_address() + "/30");
}

NetworkWire::~NetworkWire() {
    run_ip({"netns", "del", name_});
}

}  // namespace afd::test
