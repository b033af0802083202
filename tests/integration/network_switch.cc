// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/network_switch.h"

#include <unistd.h>

#include "proto/check.h"

namespace afd::test {

NetworkSwitch::NetworkSwitch(size_t num_hosts)
    : num_hosts_(num_hosts), device_("afds" + std::to_string(getpid())) {
    AFD_ASSERT(num_hosts <= kHostsMax, "%zu hosts", num_hosts);
    is_there_ = run_ip({"link", "add", device_, "type", "bridge"}) &&
                run_ip({"addr", "add", address() + "/29", "dev", device_}) &&
                run_ip({"link", "set", device_, "up"});
    for (size_t host = 0; host < num_hosts_; ++host) is_there_ = is_there_ && add_host(host);
}

NetworkSwitch::~NetworkSwitch() {
    for (size_t host = 0; host < num_hosts_; ++host) {
        run_ip({"link", "del", port_of(host)});
        run_ip({"netns", "del", namespace_of(host)});
    }
    run_ip({"link", "del", device_});
}

bool NetworkSwitch::add_host(size_t host) const {
    const std::string port = port_of(host);
    const std::string address = address_of_test(static_cast<uint32_t>(2 + host)) + "/29";
    return run_ip({"netns", "add", namespace_of(host)}) &&
           run_ip({"link", "add", port, "type", "veth", "peer", "name", end_of(host)}) &&
           run_ip({"link", "set", port, "master", device_}) &&
           run_ip({"link", "set", port, "up"}) &&
           move_device(end_of(host), namespace_of(host), device_, address);
}

}  // namespace afd::test
