// SPDX-License-Identifier: Apache-2.0
#include "schedule/ucx/ucx_library.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <ucs/config/global_opts.h>

#include <algorithm>

#include "proto/failure.h"

namespace afd::schedule {

Error ucx_error(const char* call, ucs_status_t status) {
    const char* reason = ucs_status_string(status);
    return unavailable("UCX: {}: {}", with(call, reason));
}

Result<ucp_context_h> make_ucx_context(const UcxConfig& config) {
    // A path that fails is an ordinary event here, and told by those who use it.
    ucs_global_opts_set_value("LOG_LEVEL", "fatal");
    ucp_config_t* options = nullptr;
    // AFD_UCX_X of the environment wins over UCX_X, and what is set here over both.
    ucs_status_t status = ucp_config_read("AFD", nullptr, &options);
    if (status != UCS_OK) return ucx_error("ucp_config_read", status);
    status = ucp_config_modify(options, "TLS", config.transports.c_str());
    if (status == UCS_OK) {
        status = ucp_config_modify(options, "NET_DEVICES", config.devices.c_str());
    }
    // Else UCX waits in connect(), with all of it locked, for a peer that the network took away:
    // for two minutes, in which this worker serves nobody. The name is that of its own lists
    // without "TCP_", with which UCX 1.13 takes it and does nothing.
    if (status == UCS_OK) status = ucp_config_modify(options, "CONN_NB", "y");
    // What arrives in one piece need not be put together: a publication of 16 rows of 14 KiB took
    // four pieces of 64 KiB, and as many calls of the kernel again.
    if (status == UCS_OK) status = ucp_config_modify(options, "RX_SEG_SIZE", "256k");
    // Else any that is free, which no firewall lets through.
    if (status == UCS_OK && config.port != 0) {
        const std::string ports =
            fmt::format("{}-{}", config.port, std::max(config.port, config.last_port));
        status = ucp_config_modify(options, "PORT_RANGE", ports.c_str());
    }
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
    ucp_context_h context = nullptr;
    if (status == UCS_OK) status = ucp_init(&params, options, &context);
    ucp_config_release(options);
    if (status != UCS_OK) {
        return unavailable("UCX has no transport '{}' on device '{}': {}; ucx_info -d lists them",
                           with(config.transports, config.devices, ucs_status_string(status)));
    }
    return context;
}

Result<sockaddr_storage> parse_ucx_host(const std::string& host, uint16_t port) {
    sockaddr_storage storage{};
    auto* v4 = static_cast<sockaddr_in*>(static_cast<void*>(&storage));
    auto* v6 = static_cast<sockaddr_in6*>(static_cast<void*>(&storage));
    if (::inet_pton(AF_INET, host.c_str(), &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons(port);
    } else if (::inet_pton(AF_INET6, host.c_str(), &v6->sin6_addr) == 1) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons(port);
    } else {
        return invalid_argument("'{}' is no address of a host: give it as in 10.0.0.1 or fd00::1",
                                with(host));
    }
    return storage;
}

socklen_t ucx_length_of(const sockaddr_storage& address) {
    return address.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
}

}  // namespace afd::schedule
