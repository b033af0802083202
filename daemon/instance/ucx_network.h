// SPDX-License-Identifier: Apache-2.0
#pragma once

// UcxNetwork: where the workers of this host are when they talk over UCX. UCX opens a port in every
// worker on each device that it may use, and was not written for hostile peers: by default it gets
// the one device that has the address.

#include <string>
#include <vector>

#include "daemon/config/config.h"
#include "daemon/config/port_range.h"
#include "daemon/tcp/network_devices.h"
#include "proto/control.pb.h"
#include "proto/status.h"

namespace afd::daemon {

struct UcxNetwork {
    std::string host;     // At which FFN workers listen.
    std::string devices;  // As UCX has them: "eth0", "mlx5_0:1", "all".
    PortRange ports;      // At which workers listen.

    // "10.0.0.1 on eth0": for logs.
    std::string text() const;
    // As workers are told.
    void store(control::Ucx& ucx) const;
};

// `host`: as choose_ucx_host() says. With ucx_devices = auto the device that has it; of transports
// that have other devices (rc, ud, dc) all, since no address says which of them is meant; all, too,
// where `host` is every address.
// Errors: kInvalidArgument: no device of this host has the address, or there is none of
// ucx_devices.
Result<UcxNetwork> choose_ucx_network(const Config& config,
                                      const std::string& host,
                                      const NetworkDevices& devices);

}  // namespace afd::daemon
