// SPDX-License-Identifier: Apache-2.0
#include "daemon/config/own_host_name.h"

#include <unistd.h>

#include <array>

#include "proto/host_name.h"

namespace afd::daemon {

std::string own_host_name(const Config& config) {
    if (config.join.empty()) return std::string(kLeaderName);
    if (!config.host_name.empty()) return config.host_name;
    std::array<char, 256> name{};
    ::gethostname(name.data(), name.size() - 1);
    return host_name_from(name.data());
}

}  // namespace afd::daemon
