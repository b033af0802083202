// SPDX-License-Identifier: Apache-2.0
#include "clients/afdctl/status_text.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

namespace afd::client {
namespace {

// 950 ms, 12.3 s, 5m 12s, 3h 4m, 2d 3h.
std::string duration_text(uint64_t ms) {
    const uint64_t s = ms / 1000;
    if (ms < 1000) return fmt::format("{} ms", ms);
    if (s < 60) return fmt::format("{:.1f} s", static_cast<double>(ms) / 1000);
    if (s < 3600) return fmt::format("{}m {}s", s / 60, s % 60);
    if (s < 86400) return fmt::format("{}h {}m", s / 3600, s % 3600 / 60);
    return fmt::format("{}d {}h", s / 86400, s % 86400 / 3600);
}

std::string or_dash(const std::string& text) {
    return text.empty() ? "-" : text;
}

std::string host_name(const Worker& worker) {
    return worker.host().empty() ? "local" : worker.host();
}

std::vector<std::string> worker_row(const Worker& worker) {
    const bool is_attention = worker.role() == "attention";
    const bool is_alive = worker.pid() != 0;
    std::string kv = "-";
    if (is_attention && worker.kv_tokens_total() > 0) {
        kv = fmt::format("{}/{} ({}%)",
                         worker.kv_tokens_used(),
                         worker.kv_tokens_total(),
                         worker.kv_tokens_used() * 100 / worker.kv_tokens_total());
    }
    return {or_dash(worker.role()),
            std::to_string(worker.index()),
            is_alive ? std::to_string(worker.pid()) : "-",
            or_dash(worker.state()),
            is_attention ? std::to_string(worker.num_sequences()) : "-",
            kv,
            std::to_string(worker.num_tokens()) + (is_attention ? "" : " rows"),
            std::to_string(worker.num_rounds()),
            std::to_string(worker.num_restarts()),
            is_alive ? duration_text(worker.heartbeat_age_ms()) : "-",
            is_alive ? duration_text(worker.uptime_ms()) : "-"};
}

// Left-aligned words, right-aligned numbers, two spaces between columns.
std::string table_text(const std::vector<std::vector<std::string>>& rows,
                       const std::vector<bool>& left_aligned) {
    std::vector<size_t> widths(left_aligned.size(), 0);
    for (const auto& row : rows) {
        for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
    }
    std::string text;
    for (const auto& row : rows) {
        std::string line;
        for (size_t c = 0; c < row.size(); ++c) {
            if (c > 0) line += "  ";
            line += left_aligned[c] ? fmt::format("{:<{}}", row[c], widths[c])
                                    : fmt::format("{:>{}}", row[c], widths[c]);
        }
        line.erase(line.find_last_not_of(' ') + 1);
        text += line + "\n";
    }
    return text;
}

std::string workers_text(const Status& status) {
    if (status.workers().empty()) return "no workers\n";
    std::vector<std::vector<std::string>> rows = {{"ROLE",
                                                   "INDEX",
                                                   "PID",
                                                   "STATE",
                                                   "SEQS",
                                                   "KV TOKENS",
                                                   "TOKENS",
                                                   "ROUNDS",
                                                   "RESTARTS",
                                                   "HEARTBEAT",
                                                   "UP"}};
    std::vector<bool> left_aligned = {
        true, false, false, true, false, false, false, false, false, false, false};
    for (const Worker& worker : status.workers()) rows.push_back(worker_row(worker));
    const bool has_hosts = std::any_of(status.workers().begin(),
                                       status.workers().end(),
                                       [](const Worker& worker) { return !worker.host().empty(); });
    if (has_hosts) {
        left_aligned.push_back(true);
        rows.front().emplace_back("HOST");
        for (int i = 0; i < status.workers_size(); ++i) {
            rows[static_cast<size_t>(i) + 1].push_back(host_name(status.workers(i)));
        }
    }
    return table_text(rows, left_aligned);
}

std::string worker_name(const Worker& worker) {
    return fmt::format("{} {}", worker.role(), worker.index());
}

// Three digits of small values, none behind the point of large ones.
std::string value_text(double value) {
    return value < 10 ? fmt::format("{:.2f}", value) : fmt::format("{:.0f}", value);
}

// Empty as long as nothing was measured.
std::string distributions_text(const Status& status) {
    std::vector<std::vector<std::string>> rows = {
        {"WORKER", "WHAT", "COUNT", "MEAN", "P50", "P99", "MAX"}};
    for (const Worker& worker : status.workers()) {
        for (const Distribution& what : worker.distributions()) {
            rows.push_back({worker_name(worker),
                            what.unit().empty() ? what.name()
                                                : fmt::format("{} ({})", what.name(), what.unit()),
                            std::to_string(what.count()),
                            value_text(what.mean()),
                            value_text(what.p50()),
                            value_text(what.p99()),
                            value_text(what.max())});
        }
    }
    if (rows.size() == 1) return "";
    return "\n" + table_text(rows, {true, true, false, false, false, false, false});
}

// What each worker's data thread did with its time; empty as long as nothing was done.
std::string stages_text(const Status& status) {
    std::string text;
    for (const Worker& worker : status.workers()) {
        if (worker.stages().empty() || worker.busy_us() == 0) continue;
        text += fmt::format("time      {}: {:.1f} s busy",
                            worker_name(worker),
                            static_cast<double>(worker.busy_us()) / 1e6);
        const char* separator = " (";
        for (const StageTime& stage : worker.stages()) {
            text += fmt::format(
                "{}{} {} %", separator, stage.name(), 100 * stage.time_us() / worker.busy_us());
            separator = ", ";
        }
        text += fmt::format("), {:.1f} s for the other side, {:.1f} s idle\n",
                            static_cast<double>(worker.bubble_us()) / 1e6,
                            static_cast<double>(worker.idle_us()) / 1e6);
    }
    return text.empty() ? "" : "\n" + text;
}

// Of each FFN worker the expert with most rows: how even the load is.
std::string experts_text(const Status& status) {
    std::string text;
    for (const Worker& worker : status.workers()) {
        uint64_t sum = 0;
        uint32_t count = 0;
        const ExpertRows* most = nullptr;
        for (const ExpertRows& expert : worker.expert_rows()) {
            if (expert.is_shared()) continue;
            sum += expert.rows();
            ++count;
            if (most == nullptr || expert.rows() > most->rows()) most = &expert;
        }
        if (sum == 0) continue;
        text += fmt::format(
            "experts   {}: {} rows, {:.0f} for each of {} routed experts; most: expert {} with "
            "{}\n",
            worker_name(worker),
            sum,
            static_cast<double>(sum) / count,
            count,
            most->expert(),
            most->rows());
    }
    return text.empty() ? "" : "\n" + text;
}

// Empty as long as there was none.
std::string timeouts_text(const Status& status) {
    uint64_t num_timeouts = 0;
    for (const Worker& worker : status.workers()) num_timeouts += worker.num_timeouts();
    if (num_timeouts == 0) return "";
    return fmt::format("timeouts  {} micro-batches were given up waiting for a round\n",
                       num_timeouts);
}

// Empty once every worker has read its weights.
std::string weights_text(const Status& status) {
    std::string text;
    for (const Worker& worker : status.workers()) {
        if (worker.weight_bytes_left() == 0) continue;
        text += fmt::format("weights   {} serves, and reads: {:.1f} MiB of its experts are left\n",
                            worker_name(worker),
                            static_cast<double>(worker.weight_bytes_left()) / (1 << 20));
    }
    return text;
}

// Empty where there are no FFN workers.
std::string scheduling_text(const Status& status) {
    if (status.ffn_policy().empty()) return "";
    uint64_t num_bad_choices = 0;
    uint64_t num_overruled = 0;
    for (const Worker& worker : status.workers()) {
        num_bad_choices += worker.num_bad_choices();
        num_overruled += worker.num_overruled();
    }
    std::string text = "passes    " + status.ffn_policy();
    if (!status.ffn_scheduler().empty()) text += " '" + status.ffn_scheduler() + "'";
    if (num_bad_choices + num_overruled > 0) {
        text += fmt::format(": {} bad choices, overruled {} times", num_bad_choices, num_overruled);
    }
    return text + "   placement " + or_dash(status.expert_placement()) + "\n";
}

// Empty as long as no batch went in two phases, or wanted to.
std::string two_phase_text(const Status& status) {
    uint64_t num_rounds = 0;
    uint64_t num_fallbacks = 0;
    for (const Worker& worker : status.workers()) {
        num_rounds += worker.num_two_phase_rounds();
        num_fallbacks += worker.num_two_phase_fallbacks();
    }
    if (num_rounds + num_fallbacks == 0) return "";
    return fmt::format(
        "two-phase {} rounds   {} batches failed and went by windows\n", num_rounds, num_fallbacks);
}

// Empty where all workers run on the host of afdd.
std::string hosts_text(const Status& status) {
    std::string text;
    for (const Host& host : status.hosts()) {
        std::string workers;
        for (const Worker& worker : status.workers()) {
            if (worker.host() != host.name()) continue;
            workers += (workers.empty() ? "" : ", ") + worker_name(worker);
        }
        const std::string where =
            host.address().empty()
                ? "has not joined"
                : fmt::format("{}   {} cores   {:.1f} GiB",
                              host.address(),
                              host.num_cores(),
                              static_cast<double>(host.memory_bytes()) / (1 << 30));
        text += fmt::format("host      {}   {}   {}\n", host.name(), where, workers);
    }
    return text;
}

std::string latency_text(uint64_t ns) {
    return ns == 0 ? "-" : fmt::format("{:.3f} ms", static_cast<double>(ns) / 1e6);
}

std::string bandwidth_text(uint64_t bytes_per_s) {
    const auto value = static_cast<double>(bytes_per_s);
    if (bytes_per_s == 0) return "-";
    return value < 1e9 ? fmt::format("{:.1f} MB/s", value / 1e6)
                       : fmt::format("{:.1f} GB/s", value / 1e9);
}

// What a position of a prompt or of output cost.
std::string per_token_text(uint64_t bytes, uint64_t num_positions) {
    if (num_positions == 0) return "-";
    return fmt::format("{:.1f} KiB",
                       static_cast<double>(bytes) / static_cast<double>(num_positions) / 1024);
}

std::string way_text(const Link& link) {
    if (!link.is_open()) return "-";
    return link.is_near() ? "memory" : "ucx";
}

std::vector<std::string> link_row(const Worker& from, const Worker& to, const Link& link) {
    return {worker_name(from),
            worker_name(to),
            host_name(from),
            host_name(to),
            link.is_open() ? "open" : "down",
            way_text(link),
            latency_text(link.latency_ns()),
            bandwidth_text(link.bytes_per_s()),
            per_token_text(link.bytes_sent(), from.num_positions()),
            per_token_text(link.bytes_received(), from.num_positions())};
}

// Empty where workers share memory.
std::string links_text(const Status& status) {
    std::vector<const Worker*> ranks;
    for (const Worker& worker : status.workers()) {
        if (worker.role() == "ffn") ranks.push_back(&worker);
    }
    std::vector<std::vector<std::string>> rows = {{"LINK FROM",
                                                   "TO",
                                                   "HOST",
                                                   "TO HOST",
                                                   "STATE",
                                                   "BY",
                                                   "ONE WAY",
                                                   "CARRIES",
                                                   "SENT A TOKEN",
                                                   "RECEIVED"}};
    for (const Worker& worker : status.workers()) {
        const size_t num_links = std::min<size_t>(ranks.size(), worker.links().size());
        for (size_t rank = 0; rank < num_links; ++rank) {
            rows.push_back(link_row(worker, *ranks[rank], worker.links(static_cast<int>(rank))));
        }
    }
    if (rows.size() == 1) return "";
    return "\n" +
           table_text(rows, {true, true, true, true, true, true, false, false, false, false});
}

}  // namespace

std::string status_text(const Status& status) {
    std::string text = fmt::format("instance  {}   {}   pid {}   up {}   version {}\n",
                                   or_dash(status.instance()),
                                   or_dash(status.state()),
                                   status.pid(),
                                   duration_text(status.uptime_ms()),
                                   or_dash(status.version()));
    if (!status.reason().empty()) text += "reason    " + status.reason() + "\n";
    if (!status.resize().empty()) text += "resize    " + status.resize() + "\n";
    if (!status.upgrade().empty()) text += "upgrade   " + status.upgrade() + "\n";
    text += fmt::format(
        "model     {}   {}   router {}   shared experts {}   rows {}{}   {}   context {}\n",
        or_dash(status.model()),
        or_dash(status.topology()),
        or_dash(status.router()),
        or_dash(status.shared_experts()),
        or_dash(status.dispatch_dtype()),
        status.transport() == "ucx" ? " over ucx" : "",
        or_dash(status.numeric_class()),
        status.context_length());
    text += scheduling_text(status) + hosts_text(status);
    if (status.kv_bytes_per_token() > 0) {
        text += fmt::format("kv        {}   {} bytes a token",
                            or_dash(status.kv_dtype()),
                            status.kv_bytes_per_token());
        if (status.kv_windowed_bytes_per_token() > 0) {
            text += fmt::format("   {} of them in layers with a window, with room for {} tokens",
                                status.kv_windowed_bytes_per_token(),
                                status.kv_windowed_tokens());
        }
        text += "\n";
    }
    text += fmt::format("requests  {} running   {} queued   {} finished   {} failed",
                        status.num_running(),
                        status.num_queued(),
                        status.num_finished(),
                        status.num_failed());
    if (status.num_refused() > 0) text += fmt::format("   {} refused", status.num_refused());
    if (status.num_preemptions() > 0) {
        text += fmt::format("   {} gave way", status.num_preemptions());
    }
    if (status.num_detached() > 0) text += fmt::format("   {} to resume", status.num_detached());
    text += "\n";
    text += fmt::format(
        "tokens    {}   {:.1f}/s\n", status.num_output_tokens(), status.output_tokens_per_s());
    text += two_phase_text(status) + timeouts_text(status) + weights_text(status) + "\n";
    text += workers_text(status) + links_text(status);
    text += distributions_text(status) + stages_text(status) + experts_text(status);
    if (!status.waits().empty()) text += "\n";
    for (const std::string& wait : status.waits()) text += "wait      " + wait + "\n";
    return text;
}

}  // namespace afd::client
