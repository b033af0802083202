// SPDX-License-Identifier: Apache-2.0
#include "clients/afdctl/top_screen.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

namespace afd::client {
namespace {

// From cold to hot.
constexpr std::string_view kHeat = " .:-=+*#%@";
// Of a worker's line, what stands around its bar.
constexpr size_t kNameWidth = 14;
constexpr size_t kNumbersWidth = 36;
constexpr size_t kBarMin = 10;
// No model has more (model/family/decoder_keys.h); who answers at the socket may say anything.
constexpr uint32_t kExpertsMax = 65536;

// A worker's process, as long as it lives.
const Worker* same_in(const Status& status, const Worker& worker) {
    for (const Worker& other : status.workers()) {
        const bool is_it = other.role() == worker.role() && other.index() == worker.index() &&
                           other.pid() == worker.pid() && worker.pid() != 0;
        if (is_it) return &other;
    }
    return nullptr;
}

double elapsed_s(const Status& before, const Status& now) {
    if (now.uptime_ms() <= before.uptime_ms()) return 0;
    return static_cast<double>(now.uptime_ms() - before.uptime_ms()) / 1e3;
}

uint64_t since(uint64_t before, uint64_t now) {
    return now > before ? now - before : 0;
}

std::string bar(const WorkerLoad& load, size_t width) {
    if (!load.is_known) return std::string(width, ' ');
    const auto cells = [&](double part) {
        return static_cast<size_t>(std::lround(part * static_cast<double>(width)));
    };
    const size_t busy = std::min(cells(load.busy), width);
    const size_t bubble = std::min(cells(load.busy + load.bubble), width) - busy;
    return std::string(busy, '#') + std::string(bubble, '!') +
           std::string(width - busy - bubble, '.');
}

std::string worker_line(const Status& before, const Status& now, int i, size_t columns) {
    const Worker& worker = now.workers(i);
    const WorkerLoad load = worker_load(before, now, i);
    const size_t around = kNameWidth + kNumbersWidth + 2;
    const size_t width = columns > around + kBarMin ? columns - around : kBarMin;
    const std::string numbers =
        load.is_known
            ? fmt::format("{:>4.0f} {:>4.0f} {:>7.0f}/s {:>5} {:>4} {:>6}",
                          load.busy * 100,
                          load.bubble * 100,
                          load.rounds_per_s,
                          worker.role() == "attention" ? std::to_string(worker.num_sequences())
                                                       : std::string("-"),
                          worker.role() == "attention" ? std::to_string(worker.num_in_flight())
                                                       : std::string("-"),
                          worker.num_restarts())
            : worker.state();
    return fmt::format("{:<{}}{} {}",
                       fmt::format("{} {}", worker.role(), worker.index()),
                       kNameWidth,
                       bar(load, width),
                       numbers);
}

// One character for each expert, or for several neighbours where the line is too short.
std::string heat_row(const std::vector<uint64_t>& rows, size_t width) {
    const size_t cells = std::min(rows.size(), std::max<size_t>(width, 1));
    std::vector<double> heat(cells);
    std::vector<size_t> num_experts(cells);
    for (size_t expert = 0; expert < rows.size(); ++expert) {
        const size_t cell = expert * cells / rows.size();
        heat[cell] += static_cast<double>(rows[expert]);
        ++num_experts[cell];
    }
    for (size_t cell = 0; cell < cells; ++cell) {
        heat[cell] /= static_cast<double>(num_experts[cell]);
    }
    const double most = cells == 0 ? 0 : *std::max_element(heat.begin(), heat.end());
    std::string row;
    for (const double one : heat) {
        const auto level =
            most == 0 ? 0 : static_cast<size_t>(std::ceil(one / most * (kHeat.size() - 1)));
        row += kHeat[level];
    }
    return row;
}

std::vector<std::string> expert_lines(const Status& before, const Status& now, size_t columns) {
    const std::vector<uint64_t> rows = expert_rows(before, now);
    uint64_t sum = 0;
    for (const uint64_t count : rows) sum += count;
    if (rows.empty()) return {};
    const auto busiest = std::max_element(rows.begin(), rows.end());
    std::string title = fmt::format("experts 0-{}: {} rows", rows.size() - 1, sum);
    if (sum > 0) {
        title +=
            fmt::format("; busiest {} with {:.2f} x the mean",
                        busiest - rows.begin(),
                        static_cast<double>(*busiest * rows.size()) / static_cast<double>(sum));
    }
    return {title, fmt::format("[{}]", heat_row(rows, columns - 2))};
}

double kv_percent(const Status& status) {
    uint64_t used = 0;
    uint64_t total = 0;
    for (const Worker& worker : status.workers()) {
        used += worker.kv_tokens_used();
        total += worker.kv_tokens_total();
    }
    return total == 0 ? 0 : 100.0 * static_cast<double>(used) / static_cast<double>(total);
}

double tokens_per_s(const Status& before, const Status& now) {
    const double elapsed = elapsed_s(before, now);
    const auto tokens =
        static_cast<double>(since(before.num_output_tokens(), now.num_output_tokens()));
    return elapsed == 0 ? 0 : tokens / elapsed;
}

}  // namespace

WorkerLoad worker_load(const Status& before, const Status& now, int worker) {
    const Worker& last = now.workers(worker);
    const Worker* first = same_in(before, last);
    const double elapsed = elapsed_s(before, now);
    if (first == nullptr || elapsed == 0) return {};
    const auto part = [&](uint64_t then_us, uint64_t now_us, double room) {
        return std::min(static_cast<double>(since(then_us, now_us)) / 1e6 / elapsed, room);
    };
    WorkerLoad load;
    load.is_known = true;
    load.busy = part(first->busy_us(), last.busy_us(), 1.0);
    // A wait counts when it ends: it may have begun before the first look.
    load.bubble = part(first->bubble_us(), last.bubble_us(), 1.0 - load.busy);
    load.rounds_per_s =
        static_cast<double>(since(first->num_rounds(), last.num_rounds())) / elapsed;
    return load;
}

std::vector<uint64_t> expert_rows(const Status& before, const Status& now) {
    std::map<uint32_t, uint64_t> rows;
    for (const Worker& worker : now.workers()) {
        const Worker* first = same_in(before, worker);
        for (int i = 0; i < worker.expert_rows_size(); ++i) {
            const ExpertRows& expert = worker.expert_rows(i);
            if (expert.is_shared() || expert.expert() >= kExpertsMax) continue;
            const bool has_before = first != nullptr && i < first->expert_rows_size();
            rows[expert.expert()] +=
                has_before ? since(first->expert_rows(i).rows(), expert.rows()) : 0;
        }
    }
    std::vector<uint64_t> by_expert(rows.empty() ? 0 : rows.rbegin()->first + 1);
    for (const auto& [expert, count] : rows) by_expert[expert] = count;
    return by_expert;
}

std::vector<std::string> top_lines(const Status& before, const Status& now, ScreenSize size) {
    std::vector<std::string> lines;
    lines.push_back(fmt::format("afd {}   {}   up {} s   {}",
                                now.instance(),
                                now.state(),
                                now.uptime_ms() / 1000,
                                now.model()));
    if (!now.reason().empty()) lines.push_back("reason: " + now.reason());
    lines.push_back(
        fmt::format("requests: {} running, {} waiting, {} finished, {} failed   {:.0f} tok/s   "
                    "kv {:.0f} %",
                    now.num_running(),
                    now.num_queued(),
                    now.num_finished(),
                    now.num_failed(),
                    tokens_per_s(before, now),
                    kv_percent(now)));
    lines.emplace_back();
    const size_t bar_width = size.columns > kNameWidth + kNumbersWidth + 2 + kBarMin
                                 ? size.columns - kNameWidth - kNumbersWidth - 2
                                 : kBarMin;
    lines.push_back(fmt::format("{:<{}}{:<{}} BUSY  BUB   ROUNDS   SEQS  FLY    RST",
                                "WORKER",
                                kNameWidth,
                                "# busy  ! bubble  . idle",
                                bar_width));
    // Experts and waits are last, and short: a long list of workers must not push them off.
    std::vector<std::string> tail = expert_lines(before, now, size.columns);
    for (const std::string& wait : now.waits()) tail.push_back("wait: " + wait);
    const size_t taken = lines.size() + std::min<size_t>(tail.size(), 4) + 1;
    const size_t room = size.rows > taken ? size.rows - taken : 1;
    const auto num_workers = static_cast<size_t>(now.workers_size());
    const size_t shown = num_workers <= room ? num_workers : room - 1;
    for (size_t i = 0; i < shown; ++i) {
        lines.push_back(worker_line(before, now, static_cast<int>(i), size.columns));
    }
    if (shown < num_workers) lines.push_back(fmt::format("... {} more", num_workers - shown));
    lines.emplace_back();
    lines.insert(lines.end(), tail.begin(), tail.end());
    if (lines.size() > size.rows) lines.resize(size.rows);
    for (std::string& line : lines) line = line.substr(0, size.columns);
    return lines;
}

std::string top_json(const Status& before, const Status& now) {
    nlohmann::ordered_json object;
    object["instance"] = now.instance();
    object["state"] = now.state();
    object["seconds"] = elapsed_s(before, now);
    object["num_running"] = now.num_running();
    object["num_waiting"] = now.num_queued();
    object["num_finished"] = now.num_finished();
    object["num_failed"] = now.num_failed();
    object["output_tokens_per_s"] = tokens_per_s(before, now);
    object["kv_usage"] = kv_percent(now) / 100;
    object["workers"] = nlohmann::ordered_json::array();
    for (int i = 0; i < now.workers_size(); ++i) {
        const Worker& worker = now.workers(i);
        const WorkerLoad load = worker_load(before, now, i);
        nlohmann::ordered_json row = {{"role", worker.role()},
                                      {"index", worker.index()},
                                      {"state", worker.state()},
                                      {"num_sequences", worker.num_sequences()},
                                      {"num_in_flight", worker.num_in_flight()},
                                      {"num_restarts", worker.num_restarts()}};
        // Null: it was replaced in between.
        row["busy"] = load.is_known ? nlohmann::ordered_json(load.busy) : nullptr;
        row["bubble"] = load.is_known ? nlohmann::ordered_json(load.bubble) : nullptr;
        row["rounds_per_s"] = load.is_known ? nlohmann::ordered_json(load.rounds_per_s) : nullptr;
        object["workers"].push_back(row);
    }
    object["expert_rows"] = expert_rows(before, now);
    object["waits"] = std::vector<std::string>(now.waits().begin(), now.waits().end());
    return object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace afd::client
