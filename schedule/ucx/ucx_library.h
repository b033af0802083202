// SPDX-License-Identifier: Apache-2.0
#pragma once

// What is asked of UCX besides sending: a context, addresses, and its errors as ours. For the
// sources of this folder: no other file reads headers of UCX.

#include <sys/socket.h>
#include <ucp/api/ucp.h>

#include <cstdint>
#include <string>

#include "proto/status.h"
#include "schedule/ucx/ucx_config.h"

namespace afd::schedule {

// "UCX: <call>: <its reason>".
Error ucx_error(const char* call, ucs_status_t status);

// Active messages that wake a sleeper, over the transports of the configuration.
// Errors: kUnavailable: this host has none of them.
Result<ucp_context_h> make_ucx_context(const UcxConfig& config);

// Errors: kInvalidArgument: `host` is no address.
Result<sockaddr_storage> parse_ucx_host(const std::string& host, uint16_t port);
socklen_t ucx_length_of(const sockaddr_storage& address);

}  // namespace afd::schedule
