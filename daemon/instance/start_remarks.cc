// SPDX-License-Identifier: Apache-2.0
#include "daemon/instance/start_remarks.h"

#include <fmt/core.h>

#include "daemon/config/cpu_plan.h"
#include "daemon/instance/weight_cache_choice.h"
#include "daemon/placement/host_plan.h"
#include "ops/format/numeric_class.h"

namespace afd::daemon {
namespace {

std::string class_text(const Config& config) {
    const auto wanted = ops::parse_numeric_class(config.numeric_class);
    if (!wanted || !ops::supported(*wanted) || ops::is_native(*wanted)) return "";
    return fmt::format(
        "numeric_class = {}: this processor lacks its instructions; others give the same results, "
        "but take several times as long as {}",
        ops::name_of(*wanted),
        ops::name_of(ops::best_numeric_class()));
}

std::string cache_text(const Config& config) {
    const std::string why = choose_weight_cache(config).why_nowhere;
    if (why.empty()) return "";
    return fmt::format("packed weights are not kept: {}; name a directory with weight_cache", why);
}

std::string crowd_text(const Config& config,
                       const std::vector<uint32_t>& allowed_cpus,
                       double quota) {
    if (!config.join.empty()) return "";
    const auto plan = HostPlan(config).plan_local_cpus(config, allowed_cpus, quota);
    if (!plan.ok() || !plan.value().oversubscribed || plan.value().in_turns) return "";
    return fmt::format(
        "{} cores are allowed, and some get several data threads: these take turns, and every hop "
        "waits for one; choose fewer attention_workers, ffn_workers or threads, or other lists in "
        "pin",
        allowed_cpus.size());
}

// Whoever means seconds. A pass of a large model takes longer than the shortest that are allowed.
std::string hang_text(const Config& config) {
    constexpr uint64_t kShortestMs = 1000;
    const uint64_t timeout_ms = config.hang_timeout_ms;
    // Those of a host that joins are watched by its leader's.
    if (timeout_ms == 0 || timeout_ms >= kShortestMs || !config.join.empty()) return "";
    return fmt::format(
        "hang_timeout_ms = {}: a worker that computes for {} milliseconds without a sign of "
        "progress is killed; choose {} or more, unless this is for a test",
        timeout_ms,
        timeout_ms,
        kShortestMs);
}

}  // namespace

std::vector<std::string> start_remarks(const Config& config,
                                       const std::vector<uint32_t>& allowed_cpus,
                                       double quota) {
    std::vector<std::string> remarks = {class_text(config),
                                        cache_text(config),
                                        quota_text(config, allowed_cpus, quota),
                                        crowd_text(config, allowed_cpus, quota),
                                        hang_text(config)};
    std::erase(remarks, "");
    return remarks;
}

}  // namespace afd::daemon
