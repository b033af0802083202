// SPDX-License-Identifier: Apache-2.0
#include "daemon/afdd/heartbeat_line.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>

namespace afd::daemon {
namespace {

// The bound below which `fraction` of the values are that came since `before`; nothing: none came.
std::optional<double> bound_of(const BucketHistogram& histogram,
                               const std::vector<uint64_t>& before,
                               double fraction) {
    std::vector<uint64_t> counts = histogram.counts();
    for (size_t i = 0; i < before.size(); ++i) counts[i] -= before[i];
    const uint64_t count = std::accumulate(counts.begin(), counts.end(), uint64_t{0});
    if (count == 0) return std::nullopt;
    uint64_t below = 0;
    for (size_t i = 0; i < histogram.bounds().size(); ++i) {
        below += counts[i];
        if (static_cast<double>(below) >= fraction * static_cast<double>(count)) {
            return histogram.bounds()[i];
        }
    }
    return histogram.bounds().back();
}

uint64_t percent(uint64_t part, uint64_t whole) {
    return whole == 0 ? 0 : (part * 100 + whole / 2) / whole;
}

uint64_t kv_percent(const client::Status& status) {
    uint64_t used = 0;
    uint64_t total = 0;
    for (const client::Worker& worker : status.workers()) {
        used += worker.kv_tokens_used();
        total += worker.kv_tokens_total();
    }
    return percent(used, total);
}

}  // namespace

std::optional<std::string> HeartbeatLine::next(const client::Status& status,
                                               const RequestMetrics& requests,
                                               uint64_t elapsed_ms) {
    const uint64_t num_tokens = requests.num_output_tokens - last_tokens_;
    const bool is_idle = num_tokens == 0 && status.num_running() == 0 && status.num_queued() == 0;
    std::optional<std::string> line;
    if (has_last_ && !is_idle && elapsed_ms > 0) {
        line = fmt::format("run {} wait {} | {:.0f} tok/s",
                           status.num_running(),
                           status.num_queued(),
                           static_cast<double>(num_tokens) * 1e3 / static_cast<double>(elapsed_ms));
        if (const auto p99_s = bound_of(requests.first_token_s, last_first_tokens_, 0.99)) {
            *line += fmt::format(" | TTFT p99 {:.4g} ms", *p99_s * 1e3);
        }
        *line += role_text(status, "attention") + role_text(status, "ffn");
        *line += fmt::format(" | kv {} %", kv_percent(status));
    }
    has_last_ = true;
    last_ = status;
    last_tokens_ = requests.num_output_tokens;
    last_first_tokens_ = requests.first_token_s.counts();
    return line;
}

HeartbeatLine::Times HeartbeatLine::since_last(const client::Status& status,
                                               const std::string& role) const {
    Times times;
    for (int i = 0; i < std::min(status.workers_size(), last_.workers_size()); ++i) {
        const client::Worker& now = status.workers(i);
        const client::Worker& before = last_.workers(i);
        // A successor has begun to count anew, also in a process of the same number.
        const bool counts_on = now.pid() == before.pid() && now.busy_us() >= before.busy_us() &&
                               now.bubble_us() >= before.bubble_us() &&
                               now.idle_us() >= before.idle_us();
        if (now.role() != role || !counts_on) continue;
        const uint64_t busy_us = now.busy_us() - before.busy_us();
        const uint64_t bubble_us = now.bubble_us() - before.bubble_us();
        times.busy_us += busy_us;
        times.bubble_us += bubble_us;
        times.total_us += busy_us + bubble_us + now.idle_us() - before.idle_us();
    }
    return times;
}

std::string HeartbeatLine::role_text(const client::Status& status, const std::string& role) const {
    const Times times = since_last(status, role);
    if (times.total_us == 0) return "";
    return fmt::format(" | {} busy {} %, bubble {} %",
                       role,
                       percent(times.busy_us, times.total_us),
                       percent(times.bubble_us, times.total_us));
}

}  // namespace afd::daemon
