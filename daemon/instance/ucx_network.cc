// SPDX-License-Identifier: Apache-2.0
#include "daemon/instance/ucx_network.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "daemon/config/address_kind.h"
#include "daemon/config/comma_list.h"
#include "daemon/placement/ucx_host.h"
#include "proto/failure.h"

namespace afd::daemon {

namespace {

// Transports for which the kernel's devices are all that there is.
bool uses_kernel_devices(const std::string& transports) {
    constexpr std::array<std::string_view, 10> kWithout = {
        "tcp", "self", "sm", "shm", "mm", "posix", "sysv", "cma", "knem", "xpmem"};
    return std::ranges::all_of(comma_list(transports), [&](const std::string& transport) {
        return std::ranges::find(kWithout, transport) != kWithout.end();
    });
}

Result<> check_ucx_devices(const Config& config, const NetworkDevices& devices) {
    // What a list of other transports names, or leaves out ("^eth0"), is UCX's to judge.
    if (!uses_kernel_devices(config.ucx_transports) || config.ucx_devices.starts_with('^')) {
        return {};
    }
    for (const std::string& name : comma_list(config.ucx_devices)) {
        if (name == "all" || devices.contains(name)) continue;
        return invalid_argument(
            "ucx_devices = '{}': this host has no network device '{}' that is up (ip link lists "
            "them); leave it at 'auto' for the one that has ucx_host",
            with(config.ucx_devices, name));
    }
    return {};
}

}  // namespace

std::string UcxNetwork::text() const {
    const std::string where = host + (devices == "all" ? " on every device" : " on " + devices);
    if (ports.first == 0) return where;
    return where + fmt::format(", ports {} to {}", ports.first, ports.last);
}

void UcxNetwork::store(control::Ucx& ucx) const {
    ucx.set_host(host);
    ucx.set_devices(devices);
    ucx.set_first_port(ports.first);
    ucx.set_last_port(ports.last);
}

Result<UcxNetwork> choose_ucx_network(const Config& config,
                                      const std::string& host,
                                      const NetworkDevices& devices) {
    AFD_ASSIGN(const PortRange ports, parse_port_range(config.host_ports));
    // Where the kernel does not tell, UCX finds out.
    const bool is_known = !devices.empty();
    const std::string own_device = device_with(devices, host);
    // Every address: nobody listens here, and no device is meant.
    const bool is_any = kind_of_address(host) == AddressKind::kAny;
    if (is_known && !is_any && own_device.empty()) {
        return invalid_argument(
            "ucx_host = '{}': no network device of this host has this address (ip address lists "
            "them)",
            with(host));
    }
    if (config.ucx_devices != kUcxAuto) {
        if (is_known) AFD_TRY(check_ucx_devices(config, devices));
        return UcxNetwork{host, config.ucx_devices, ports};
    }
    const bool is_one = is_known && !is_any && uses_kernel_devices(config.ucx_transports);
    return UcxNetwork{host, is_one ? own_device : "all", ports};
}

}  // namespace afd::daemon
