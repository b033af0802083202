// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <string_view>

#include "daemon/config/address_kind.h"
#include "daemon/config/comma_list.h"
#include "daemon/config/port_range.h"
#include "daemon/options/choice_member.h"
#include "daemon/options/option_topics.h"
#include "daemon/placement/ucx_host.h"
#include "model/unicode/utf8.h"

namespace afd::daemon {

namespace {

// Workers are told it as text.
Result<> check_ucx_text(const std::string& value) {
    if (model::is_valid_utf8(value)) return {};
    return Error{Code::kInvalidArgument, "must be UTF-8"};
}

// With UCX's own shared memory alone nobody hears that a peer is gone, and no path of UCX ever
// ends.
Result<> check_ucx_transports(const std::string& value) {
    AFD_TRY(check_ucx_text(value));
    constexpr std::array<std::string_view, 10> kSilent = {
        "", "self", "sm", "shm", "mm", "posix", "sysv", "cma", "knem", "xpmem"};
    const bool is_silent =
        std::ranges::all_of(comma_list(value), [&](const std::string& transport) {
            return std::ranges::find(kSilent, transport) != kSilent.end();
        });
    if (!is_silent) return {};
    return Error{Code::kInvalidArgument,
                 "must have a transport that tells when a peer is gone, as 'tcp' or 'rc' does; "
                 "neighbours have memory of their own with ucx_neighbours = memory"};
}

Result<> check_ucx_host(const std::string& value) {
    AFD_TRY(check_ucx_text(value));
    if (value == kUcxAuto) return {};
    switch (kind_of_address(value).value_or(AddressKind::kMulticast)) {
        case AddressKind::kLoopback:
        case AddressKind::kUnicast:
            return {};
        case AddressKind::kAny:
            return Error{Code::kInvalidArgument,
                         "must be an address of this host, and this is every one; peers need one "
                         "to connect to, as 10.0.0.1 or fd00::1"};
        case AddressKind::kMulticast:
            break;
    }
    return Error{Code::kInvalidArgument,
                 "must be an address of this host, as in 10.0.0.1 or fd00::1, or 'auto'; names are "
                 "not looked up"};
}

}  // namespace

std::vector<ConfigOption> transport_options() {
    using C = Config;
    return {
        {.name = "transport",
         .member = choice<&C::transport>(),
         .default_text = "shared_memory",
         .unit = "",
         .description = "Over what rows travel between workers: shared_memory, or messages of UCX",
         .choices = names_up_to(Transport::kUcx)},
        {.name = "ucx_transports",
         .member = &C::ucx_transports,
         .default_text = "tcp",
         .unit = "",
         .description = "transport = ucx: which transports UCX may use, commas between (UCX_TLS); "
                        "more than its own shared memory",
         .check = check_ucx_transports},
        {.name = "ucx_devices",
         .member = &C::ucx_devices,
         .default_text = kUcxAuto,
         .unit = "",
         .description = "transport = ucx: network devices that it may use (UCX_NET_DEVICES); auto: "
                        "that of ucx_host",
         .check = check_ucx_text},
        {.name = "ucx_host",
         .member = &C::ucx_host,
         .default_text = kUcxAuto,
         .unit = "",
         .description = "transport = ucx: address of this host at which FFN workers listen; auto: "
                        "where other hosts find it, else 127.0.0.1",
         .check = check_ucx_host},
        {.name = "host_ports",
         .member = &C::host_ports,
         .default_text = "",
         .unit = "",
         .description = "transport = ucx: ports at which other hosts reach this one and its "
                        "workers, '7420-7499'; empty: any",
         .check = check_port_range},
        {.name = "ucx_neighbours",
         .member = choice<&C::ucx_neighbours>(),
         .default_text = "memory",
         .unit = "",
         .description = "transport = ucx: how workers of one host talk: memory, or ucx like others",
         .choices = names_up_to(Neighbours::kUcx)},
    };
}

}  // namespace afd::daemon
