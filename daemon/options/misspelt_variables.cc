// SPDX-License-Identifier: Apache-2.0
#include "daemon/options/misspelt_variables.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "daemon/options/config_options.h"
#include "proto/did_you_mean.h"

namespace afd::daemon {

namespace {

constexpr std::string_view kVariablePrefix = "AFD_";

// Those that afdd, its workers, its clients or its tests read beside the options.
constexpr std::array<std::string_view, 6> kOthers = {"AFD_API_KEY",
                                                     "AFD_CONFIG",
                                                     "AFD_CRASH_POINTS",
                                                     "AFD_SOCKET",
                                                     "AFD_TEST_MODEL",
                                                     "AFD_WORKER_DIRECTORY"};

bool is_of_others(std::string_view name) {
    // UCX reads its own by this name; of the fake workers there are many.
    return std::find(kOthers.begin(), kOthers.end(), name) != kOthers.end() ||
           name.starts_with("AFD_UCX_") || name.starts_with("AFD_FAKE_");
}

}  // namespace

std::vector<std::string> misspelt_variables(const std::map<std::string, std::string>& environment) {
    std::vector<std::string> options;
    for (const std::string& option : option_names()) {
        options.push_back(environment_name(option).substr(kVariablePrefix.size()));
    }
    std::vector<std::string> sentences;
    for (const auto& [name, value] : environment) {
        // A cluster names its services so.
        const bool is_address = value.starts_with("tcp://") || value.starts_with("udp://");
        if (!name.starts_with(kVariablePrefix) || is_of_others(name) || is_address) continue;
        const std::string word = name.substr(kVariablePrefix.size());
        const std::string meant = nearest_word(word, options);
        if (meant.empty() || meant == word) continue;
        sentences.push_back(name + " is no option of afdd and is ignored (did you mean '" +
                            std::string(kVariablePrefix) + meant + "'?)");
    }
    return sentences;
}

}  // namespace afd::daemon
