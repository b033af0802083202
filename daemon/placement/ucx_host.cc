// SPDX-License-Identifier: Apache-2.0
#include "daemon/placement/ucx_host.h"

#include "daemon/config/address_kind.h"
#include "daemon/config/listen_address.h"
#include "daemon/placement/host_plan.h"
#include "proto/failure.h"

namespace afd::daemon {

Result<std::string> choose_ucx_host(const Config& config, const std::string& seen_at) {
    if (config.ucx_host == kUcxAuto) return seen_at;
    if (is_loopback_host(config.ucx_host) && !is_loopback_host(seen_at)) {
        return invalid_argument(
            "ucx_host = '{}': only this machine reaches it, and workers run on other hosts; leave "
            "it at 'auto', or name the address of this host in their network",
            with(config.ucx_host));
    }
    return config.ucx_host;
}

Result<std::string> own_ucx_host(const Config& config) {
    if (!config.has_hosts()) return choose_ucx_host(config, "127.0.0.1");
    AFD_ASSIGN(const ListenAddress listen, parse_listen_address(config.cluster_listen));
    if (config.ucx_host == kUcxAuto && kind_of_address(listen.host) == AddressKind::kAny &&
        HostPlan(config).num_workers(control::FFN, "") > 0) {
        return invalid_argument(
            "ucx_host is not set: cluster_listen = '{}' is every address of this host; say with "
            "ucx_host at which one FFN workers listen",
            with(config.cluster_listen));
    }
    return choose_ucx_host(config, listen.host);
}

}  // namespace afd::daemon
