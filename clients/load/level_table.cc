// SPDX-License-Identifier: Apache-2.0
#include "clients/load/level_table.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <string>

namespace afd::client {
namespace {

constexpr const char* kRowFormat = "{:<8} {:>6} {:>6} {:>6} {:>7} {:>8}  {:>15}  {:>13}  {:>15}\n";

// Three significant digits, but at least whole milliseconds.
std::string ms_text(int64_t us) {
    const double ms = static_cast<double>(us) / 1000;
    if (ms < 9.995) return fmt::format("{:.2f}", ms);
    if (ms < 99.95) return fmt::format("{:.1f}", ms);
    return fmt::format("{:.0f}", ms);
}

std::string p50_p99_text(const Histogram& histogram) {
    if (histogram.count() == 0) return "-";
    return ms_text(histogram.value_at(50)) + " / " + ms_text(histogram.value_at(99));
}

std::string saturation_text(const std::vector<LevelResult>& results) {
    std::string text;
    Histogram lag_us;
    double busy_ratio = 0;
    for (const LevelResult& result : results) {
        lag_us.merge(result.client.lag_us);
        busy_ratio = std::max(busy_ratio, result.client.busy_ratio);
        const std::string reason = result.saturation();
        if (reason.empty()) continue;
        text += fmt::format("client SATURATED at {}: {}; its latencies may not be the server's\n",
                            result.level.name(),
                            reason);
    }
    if (!text.empty()) return text;
    const std::string lag =
        lag_us.count() == 0 ? ""
                            : fmt::format("sent p99 {} ms late, ", ms_text(lag_us.value_at(99)));
    return fmt::format("client OK: {}busy {:.1f} % of the time at most\n", lag, busy_ratio * 100);
}

// A run that ended early has fewer rows than it was asked for.
std::string broken_text(const std::vector<LevelResult>& results) {
    std::string text;
    for (const LevelResult& result : results) {
        if (result.broken.empty()) continue;
        text += fmt::format("ended early at {}: {}; later levels were not run\n",
                            result.level.name(),
                            result.broken);
    }
    return text;
}

// Every level asks the same requests, prompts come again within one, and the warm-up asks some: the
// server may have computed them already.
std::string cache_text(const std::vector<LevelResult>& results) {
    std::string text;
    for (const LevelResult& result : results) {
        const uint64_t num_cached = result.num_cached_tokens();
        if (num_cached == 0) continue;
        const double percent =
            static_cast<double>(num_cached) * 100 /
            static_cast<double>(std::max(num_cached, result.num_prompt_tokens()));
        text += fmt::format("{}{} % of {}{}",
                            text.empty() ? "" : ", ",
                            percent < 0.5 ? "under 1" : fmt::format("{:.0f}", percent),
                            text.empty() ? "the prompt tokens of " : "",
                            result.level.name());
    }
    if (text.empty()) return "";
    return text +
           " came from the server's prefix cache; to measure without it, start the server without "
           "it "
           "(afdd: --prefix-cache false)\n";
}

}  // namespace

std::string level_table_header() {
    return fmt::format(fmt::runtime(kRowFormat),
                       "",
                       "",
                       "",
                       "",
                       "",
                       "output",
                       "TTFT ms",
                       "ITL ms",
                       "E2E ms") +
           fmt::format(fmt::runtime(kRowFormat),
                       "level",
                       "sent",
                       "ok",
                       "failed",
                       "req/s",
                       "tok/s",
                       "p50 / p99",
                       "p50 / p99",
                       "p50 / p99");
}

std::string level_table_row(const LevelResult& result) {
    return fmt::format(fmt::runtime(kRowFormat),
                       result.level.name(),
                       result.requests.size(),
                       result.num_with(Outcome::kOk),
                       result.num_with(Outcome::kFailed),
                       fmt::format("{:.2f}", result.requests_per_s()),
                       fmt::format("{:.1f}", result.output_tokens_per_s()),
                       p50_p99_text(result.ttft_us),
                       p50_p99_text(result.itl_us),
                       p50_p99_text(result.e2e_us));
}

std::string run_summary(const std::vector<LevelResult>& results) {
    std::map<std::string, ErrorGroup> errors;
    uint64_t num_guessed = 0;
    for (const LevelResult& result : results) {
        num_guessed += result.num_guessed;
        for (const auto& [kind, group] : result.errors()) {
            ErrorGroup& total = errors[kind];
            if (total.count == 0) total.sample = group.sample;
            total.count += group.count;
        }
    }
    std::string text = saturation_text(results) + broken_text(results) + cache_text(results);
    if (num_guessed > 0) {
        text += fmt::format(
            "tokens of {} requests are guessed, one for each chunk: the server tells neither token "
            "ids nor usage, or a usage of 0\n",
            num_guessed);
    }
    for (const auto& [kind, group] : errors) {
        text += fmt::format("failed {}: {}, as in: {}\n", group.count, kind, group.sample);
    }
    return text;
}

std::string progress_text(const Level& level, const LevelProgress& progress) {
    const double seconds = static_cast<double>(progress.now_us) / 1e6;
    return fmt::format("{}  {:.1f} s   {} sent  {} ok  {} failed  {} in flight  {:.0f} tok/s",
                       level.name(),
                       seconds,
                       progress.num_sent,
                       progress.num_ok,
                       progress.num_failed,
                       progress.num_in_flight,
                       seconds > 0 ? static_cast<double>(progress.num_tokens) / seconds : 0);
}

}  // namespace afd::client
