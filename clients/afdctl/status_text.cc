// SPDX-License-Identifier: Apache-2.0
#include "clients/afdctl/status_text.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
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
    for (const Worker& worker : status.workers()) rows.push_back(worker_row(worker));
    return table_text(rows,
                      {true, false, false, true, false, false, false, false, false, false, false});
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

nlohmann::ordered_json host_json(const Host& host) {
    return {{"name", host.name()},
            {"address", host.address()},
            {"num_cores", host.num_cores()},
            {"memory_bytes", host.memory_bytes()}};
}

nlohmann::ordered_json worker_json(const Worker& worker) {
    nlohmann::ordered_json row;
    row["role"] = worker.role();
    row["index"] = worker.index();
    row["host"] = worker.host();
    row["pid"] = worker.pid();
    row["state"] = worker.state();
    row["num_restarts"] = worker.num_restarts();
    row["num_sequences"] = worker.num_sequences();
    row["kv_tokens_used"] = worker.kv_tokens_used();
    row["kv_tokens_total"] = worker.kv_tokens_total();
    row["kv_windowed_tokens_used"] = worker.kv_windowed_tokens_used();
    row["num_tokens"] = worker.num_tokens();
    row["num_rounds"] = worker.num_rounds();
    row["num_two_phase_rounds"] = worker.num_two_phase_rounds();
    row["num_two_phase_fallbacks"] = worker.num_two_phase_fallbacks();
    row["num_timeouts"] = worker.num_timeouts();
    row["weight_bytes_left"] = worker.weight_bytes_left();
    row["num_prefix_queries"] = worker.num_prefix_queries();
    row["num_prefix_hits"] = worker.num_prefix_hits();
    row["heartbeat_age_ms"] = worker.heartbeat_age_ms();
    row["uptime_ms"] = worker.uptime_ms();
    row["busy_us"] = worker.busy_us();
    row["bubble_us"] = worker.bubble_us();
    row["idle_us"] = worker.idle_us();
    row["stages"] = nlohmann::ordered_json::array();
    for (const StageTime& stage : worker.stages()) {
        row["stages"].push_back({{"name", stage.name()}, {"time_us", stage.time_us()}});
    }
    row["distributions"] = nlohmann::ordered_json::array();
    for (const Distribution& what : worker.distributions()) {
        row["distributions"].push_back({{"name", what.name()},
                                        {"unit", what.unit()},
                                        {"count", what.count()},
                                        {"mean", what.mean()},
                                        {"p50", what.p50()},
                                        {"p99", what.p99()},
                                        {"max", what.max()}});
    }
    row["expert_rows"] = nlohmann::ordered_json::array();
    for (const ExpertRows& expert : worker.expert_rows()) {
        row["expert_rows"].push_back({{"expert", expert.expert()},
                                      {"rows", expert.rows()},
                                      {"is_shared", expert.is_shared()}});
    }
    return row;
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
    text += hosts_text(status);
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
    if (status.num_detached() > 0) text += fmt::format("   {} to resume", status.num_detached());
    text += "\n";
    text += fmt::format(
        "tokens    {}   {:.1f}/s\n", status.num_output_tokens(), status.output_tokens_per_s());
    text += two_phase_text(status) + timeouts_text(status) + weights_text(status) + "\n";
    text += workers_text(status);
    text += distributions_text(status) + stages_text(status) + experts_text(status);
    if (!status.waits().empty()) text += "\n";
    for (const std::string& wait : status.waits()) text += "wait      " + wait + "\n";
    return text;
}

std::string status_json(const Status& status) {
    nlohmann::ordered_json object;
    object["instance"] = status.instance();
    object["state"] = status.state();
    object["reason"] = status.reason();
    object["resize"] = status.resize();
    object["upgrade"] = status.upgrade();
    object["pid"] = status.pid();
    object["uptime_ms"] = status.uptime_ms();
    object["version"] = status.version();
    object["model"] = status.model();
    object["topology"] = status.topology();
    object["router"] = status.router();
    object["shared_experts"] = status.shared_experts();
    object["transport"] = status.transport();
    object["kv_dtype"] = status.kv_dtype();
    object["kv_bytes_per_token"] = status.kv_bytes_per_token();
    object["kv_windowed_bytes_per_token"] = status.kv_windowed_bytes_per_token();
    object["kv_windowed_tokens"] = status.kv_windowed_tokens();
    object["dispatch_dtype"] = status.dispatch_dtype();
    object["numeric_class"] = status.numeric_class();
    object["context_length"] = status.context_length();
    object["vocab_size"] = status.vocab_size();
    object["num_running"] = status.num_running();
    object["num_queued"] = status.num_queued();
    object["num_finished"] = status.num_finished();
    object["num_failed"] = status.num_failed();
    object["num_detached"] = status.num_detached();
    object["kept_bytes"] = status.kept_bytes();
    object["num_output_tokens"] = status.num_output_tokens();
    object["output_tokens_per_s"] = status.output_tokens_per_s();
    object["waits"] = std::vector<std::string>(status.waits().begin(), status.waits().end());
    object["hosts"] = nlohmann::ordered_json::array();
    for (const Host& host : status.hosts()) object["hosts"].push_back(host_json(host));
    object["workers"] = nlohmann::ordered_json::array();
    for (const Worker& worker : status.workers()) {
        object["workers"].push_back(worker_json(worker));
    }
    return object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace afd::client
