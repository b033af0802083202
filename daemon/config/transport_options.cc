// SPDX-License-Identifier: Apache-2.0
#include "daemon/config/choice_member.h"
#include "daemon/config/option_topics.h"

namespace afd::daemon {

std::vector<ConfigOption> transport_options() {
    using C = Config;
    return {
        {.name = "transport",
         .member = choice<&C::transport>(),
         .default_text = "shared_memory",
         .unit = "",
         .description = "Over what rows travel between workers: shared_memory, or messages of UCX",
         .choices = names_up_to(Transport::kUcx)},
        {"ucx_transports",
         &C::ucx_transports,
         "tcp",
         "",
         "transport = ucx: which transports UCX may use, commas between (UCX_TLS)"},
        {"ucx_devices",
         &C::ucx_devices,
         "all",
         "",
         "transport = ucx: which network devices it may use (UCX_NET_DEVICES)"},
        {"ucx_host",
         &C::ucx_host,
         "127.0.0.1",
         "",
         "transport = ucx: address of this host at which FFN workers listen"},
        {.name = "ucx_neighbours",
         .member = choice<&C::ucx_neighbours>(),
         .default_text = "memory",
         .unit = "",
         .description = "transport = ucx: how workers of one host talk: memory, or ucx like others",
         .choices = names_up_to(Neighbours::kUcx)},
    };
}

}  // namespace afd::daemon
