// SPDX-License-Identifier: Apache-2.0
#include "daemon/options/unused_options.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "daemon/options/config_options.h"

namespace afd::daemon {

namespace {

struct Rule {
    std::string_view option;  // With '_' at its end: each whose name begins so.
    bool (*is_unused)(const Config& config);
    std::string_view why;

    bool is_about(std::string_view name) const {
        return option.ends_with('_') ? name.starts_with(option) : name == option;
    }
};

bool has_no_http(const Config& config) {
    return config.http.empty();
}
bool has_no_hosts(const Config& config) {
    return !config.has_hosts();
}
bool is_without_ucx(const Config& config) {
    return config.transport != Transport::kUcx;
}
bool is_colocated(const Config& config) {
    return config.colocated();
}
bool has_windows_only(const Config& config) {
    return config.dispatch == Dispatch::kWindow;
}
bool has_two_phases_only(const Config& config) {
    return config.dispatch == Dispatch::kTwoPhase;
}
bool has_no_two_phases(const Config& config) {
    return !config.two_phase();
}
bool has_ffn_scheduler(const Config& config) {
    return !config.ffn_scheduler.empty();
}
bool waits_for_nobody(const Config& config) {
    return !has_ffn_scheduler(config) && config.ffn_policy == schedule::FfnPolicy::kAny;
}
bool has_no_groups(const Config& config) {
    return config.ffn_policy != schedule::FfnPolicy::kGroups;
}

constexpr std::string_view kWithoutHosts = "without attention_hosts or ffn_hosts";
constexpr std::string_view kWithoutUcx = "without transport = ucx";
constexpr std::string_view kWhenColocated = "with topology = colocated";
constexpr std::string_view kWithWindows = "with dispatch = window";
constexpr std::string_view kUcxUnasked =
    "over ucx without dispatch = two_phase or two_phase_threshold";
constexpr std::string_view kBesideScheduler = "beside ffn_scheduler";

// The first one that holds says why. The file of a leader may be that of all its hosts, and have
// what is for those that join.
constexpr auto kRules = std::to_array<Rule>({
    {"http_", has_no_http, "without http = ADDRESS:PORT"},
    {"cluster_", has_no_hosts, kWithoutHosts},
    {"host_name", has_no_hosts, "without join = HOST:PORT"},
    {"leave_with_leader", has_no_hosts, "without join = HOST:PORT"},
    {"ucx_", is_without_ucx, kWithoutUcx},
    {"host_ports", is_without_ucx, kWithoutUcx},
    {"dispatch", is_colocated, kWhenColocated},
    {"prefill_tokens_max", is_colocated, kWhenColocated},
    {"prefill_tokens_max", has_windows_only, kWithWindows},
    {"prefill_tokens_max", has_no_two_phases, kUcxUnasked},
    {"two_phase_", is_colocated, kWhenColocated},
    {"two_phase_", has_windows_only, kWithWindows},
    {"two_phase_threshold", has_two_phases_only, "with dispatch = two_phase"},
    {"two_phase_", has_no_two_phases, kUcxUnasked},
    {"shared_experts", is_colocated, kWhenColocated},
    {"dispatch_mode", is_colocated, kWhenColocated},
    {"row_checksums", is_colocated, kWhenColocated},
    {"expert_placement", is_colocated, kWhenColocated},
    {"replica_choice", is_colocated, kWhenColocated},
    {"gather_us", is_colocated, kWhenColocated},
    // A library of one's own gets it.
    {"gather_us", waits_for_nobody, "with ffn_policy = any"},
    {"ffn_", is_colocated, kWhenColocated},
    {"ffn_policy", has_ffn_scheduler, kBesideScheduler},
    {"ffn_sync_group_size", has_ffn_scheduler, kBesideScheduler},
    {"ffn_sync_group_size", has_no_groups, "without ffn_policy = groups"},
});

// Whether somebody asked for another value than there would be without. A file that --check-config
// wrote has every option.
bool is_wanted(const ConfigOption& option, const ResolvedConfig& resolved) {
    const std::string& origin = resolved.origins.at(option.name);
    if (origin == "default" || origin == "--slurm") return false;
    Config defaults;
    const Result<> set = set_option(option, option.default_text, defaults);
    return !set.ok() || option_literal(option, resolved.config) != option_literal(option, defaults);
}

}  // namespace

std::vector<std::string> unused_options(const ResolvedConfig& resolved) {
    std::vector<std::string> sentences;
    if (!resolved.config.join.empty()) return sentences;
    for (const ConfigOption& option : config_options()) {
        const auto rule = std::ranges::find_if(kRules, [&](const Rule& one) {
            return one.is_about(option.name) && one.is_unused(resolved.config);
        });
        if (rule == kRules.end() || !is_wanted(option, resolved)) continue;
        sentences.push_back(fmt::format("{} (from {}) has no effect {}",
                                        option.name,
                                        resolved.origins.at(option.name),
                                        rule->why));
    }
    return sentences;
}

}  // namespace afd::daemon
