// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/network_switch.h"

#include <unistd.h>

#include "proto/check.h"

namespace afd::test {

NetworkSwitch::NetworkSwitch(size_t num_hosts,
                             const std::optional<tools::LinkConditions>& conditions)
    : num_hosts_(num_hosts), device_("afds" + std::to_string(getpid())) {
    AFD_ASSERT(num_hosts <= kHostsMax, "%zu hosts", num_hosts);
    is_there_ = run_ip({"link", "add", device_, "type", "bridge"}) &&
                run_ip({"addr", "add", address() + "/29", "dev", device_}) &&
                run_ip({"link", "set", device_, "up"});
    for (size_t host = 0; host < num_hosts_; ++host) {
        is_there_ = is_there_ && add_host(host, conditions);
    }
}

NetworkSwitch::~NetworkSwitch() {
    for (size_t host = 0; host < num_hosts_; ++host) run_ip({"netns", "del", namespace_of(host)});
    run_ip({"link", "del", device_});
}

bool NetworkSwitch::add_host(size_t host, const std::optional<tools::LinkConditions>& conditions) {
    const std::string address = address_of_test(static_cast<uint32_t>(2 + host)) + "/29";
    links_.push_back(std::make_unique<NetworkLink>(port_of(host), end_of(host), conditions));
    return run_ip({"netns", "add", namespace_of(host)}) &&
           run_ip({"link", "set", port_of(host), "master", device_}) &&
           links_.back()->move_far(namespace_of(host), device_, address);
}

}  // namespace afd::test
