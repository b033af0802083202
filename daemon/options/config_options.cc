// SPDX-License-Identifier: Apache-2.0
#include "daemon/options/config_options.h"

#include <algorithm>
#include <iterator>

#include "daemon/options/option_topics.h"

namespace afd::daemon {

namespace {

std::vector<ConfigOption> join_topics() {
    std::vector<ConfigOption> options;
    for (const OptionTopic& topic : config_topics()) {
        std::ranges::copy(topic.options, std::back_inserter(options));
    }
    return options;
}

}  // namespace

std::span<const OptionTopic> config_topics() {
    static const std::vector<OptionTopic> topics = {
        {"The model and its workers", instance_options()},
        {"What rows travel over", transport_options()},
        {"Several hosts", host_options()},
        {"Long prompts", two_phase_options()},
        {"What a worker has", resource_options()},
        {"Arithmetic", numeric_options()},
        {"Experts", expert_options()},
        {"Times", timeout_options()},
        {"Clients", client_options()},
        {"HTTP", http_options()},
        {"The processes", process_options()},
    };
    return topics;
}

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
