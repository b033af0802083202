// SPDX-License-Identifier: Apache-2.0
#include "daemon/options/config_options.h"

#include <algorithm>
#include <iterator>

#include "daemon/options/option_topics.h"

namespace afd::daemon {

namespace {

// The order of the topics is that of --help and --check-config.
std::vector<ConfigOption> join_topics() {
    std::vector<ConfigOption> options;
    for (const auto topic : {instance_options,
                             transport_options,
                             host_options,
                             two_phase_options,
                             resource_options,
                             numeric_options,
                             expert_options,
                             timeout_options,
                             client_options,
                             http_options,
                             process_options}) {
        std::vector<ConfigOption> of_topic = topic();
        std::move(of_topic.begin(), of_topic.end(), std::back_inserter(options));
    }
    return options;
}

}  // namespace

std::span<const ConfigOption> config_options() {
    // One table: flags, keys, variables, --check-config and the tests all read it.
    static const std::vector<ConfigOption> options = join_topics();
    return options;
}

std::vector<std::string> option_names() {
    std::vector<std::string> names;
    for (const ConfigOption& option : config_options()) names.emplace_back(option.name);
    return names;
}

}  // namespace afd::daemon
