// SPDX-License-Identifier: Apache-2.0
#include "daemon/config/join_address.h"
#include "daemon/config/listen_address.h"
#include "daemon/options/option_topics.h"
#include "daemon/placement/host_plan.h"

namespace afd::daemon {

namespace {

Result<> check_hosts(const std::string& value) {
    if (value.empty()) return {};
    const auto names = parse_hosts(value);
    return names.ok() ? Result<>() : Result<>(names.error());
}

}  // namespace

std::vector<ConfigOption> host_options() {
    using C = Config;
    return {
        {.name = "attention_hosts",
         .member = &C::attention_hosts,
         .default_text = "",
         .unit = "",
         .description = "Hosts of attention workers in turn, 'local,b'; empty: all here",
         .check = check_hosts},
        {.name = "ffn_hosts",
         .member = &C::ffn_hosts,
         .default_text = "",
         .unit = "",
         .description = "Hosts of FFN workers in turn, 'local,b'; empty: all here",
         .check = check_hosts},
        {.name = "cluster_listen",
         .member = &C::cluster_listen,
         .default_text = "",
         .unit = "",
         .description = "ADDRESS:PORT at which other hosts join",
         .check = check_listen_address},
        {.name = "join",
         .member = &C::join,
         .default_text = "",
         .unit = "",
         .description = "Run workers for the afdd that listens at this HOST:PORT",
         .check = check_join_address},
        {"cluster_dir", &C::cluster_dir, "", "", "Certificates of the hosts (afdctl cluster init)"},
        {"host_name", &C::host_name, "", "", "join: name of this host; empty: what it is called"},
        {"leave_with_leader",
         &C::leave_with_leader,
         "false",
         "",
         "join: end when the leader has ended in order, rather than wait for the next"},
    };
}

}  // namespace afd::daemon
