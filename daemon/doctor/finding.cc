// SPDX-License-Identifier: Apache-2.0
#include "daemon/doctor/finding.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

namespace afd::daemon {

namespace {

const char* level_name(Finding::Level level) {
    switch (level) {
        case Finding::Level::kOk:
            return "ok";
        case Finding::Level::kWarning:
            return "warning";
        case Finding::Level::kFailed:
            return "failed";
    }
    return "unknown";
}

// In the order in which a start comes to them. Other hosts and HTTP clients are let in last.
constexpr std::array<std::string_view, 8> kOrderOfStart = {
    "nofile", "runtime", "cache", "network", "memory", "shm", "certificates", "http"};

size_t place_of(const Finding& finding) {
    const auto found = std::ranges::find(kOrderOfStart, finding.subject);
    return static_cast<size_t>(found - kOrderOfStart.begin());
}

}  // namespace

ExitCode exit_code_of(const std::vector<Finding>& findings) {
    const Finding* first = nullptr;
    for (const Finding& finding : findings) {
        if (finding.level != Finding::Level::kFailed) continue;
        if (first == nullptr || place_of(finding) < place_of(*first)) first = &finding;
    }
    return first == nullptr ? ExitCode::kOk : first->exit_code;
}

std::string findings_text(const std::vector<Finding>& findings) {
    std::string text;
    for (const Finding& finding : findings) {
        text += fmt::format(
            "{:<12}  {:<7}  {}\n", finding.subject, level_name(finding.level), finding.text);
        if (!finding.remedy.empty()) text += fmt::format("{:<23}{}\n", "", finding.remedy);
    }
    return text;
}

std::string findings_json(const std::vector<Finding>& findings) {
    nlohmann::ordered_json array = nlohmann::ordered_json::array();
    for (const Finding& finding : findings) {
        array.push_back({{"subject", finding.subject},
                         {"level", level_name(finding.level)},
                         {"text", finding.text},
                         {"remedy", finding.remedy}});
    }
    return array.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace afd::daemon
