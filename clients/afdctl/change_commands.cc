// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "clients/afdctl/command.h"
#include "clients/exit_code.h"

namespace afd::client {
namespace {

void print_resized(const CommonOptions& common, const Resized& resized) {
    const double still_ms = static_cast<double>(resized.stood_still_us()) / 1e3;
    if (common.json) {
        nlohmann::ordered_json object;
        object["state"] = "resized";
        object["attention_workers"] = resized.attention_workers();
        object["ffn_workers"] = resized.ffn_workers();
        object["stood_still_us"] = resized.stood_still_us();
        object["total_us"] = resized.total_us();
        object["num_replays"] = resized.num_replays();
        std::cout << object.dump() << std::endl;
        return;
    }
    std::cout << fmt::format(
                     "{} attention and {} ffn workers serve now; {} requests were moved, and stood "
                     "still for {:.0f} ms",
                     resized.attention_workers(),
                     resized.ffn_workers(),
                     resized.num_replays(),
                     still_ms)
              << std::endl;
}

void print_upgraded(const CommonOptions& common, const Upgraded& upgraded) {
    if (common.json) {
        nlohmann::ordered_json object;
        object["state"] = "upgraded";
        object["pid"] = upgraded.pid();
        object["version"] = upgraded.version();
        object["old_pid"] = upgraded.old_pid();
        object["num_requests"] = upgraded.num_requests();
        object["total_us"] = upgraded.total_us();
        std::cout << object.dump() << std::endl;
        return;
    }
    std::cout << fmt::format("pid {} serves now, version {}; {} requests end with pid {}",
                             upgraded.pid(),
                             upgraded.version(),
                             upgraded.num_requests(),
                             upgraded.old_pid())
              << std::endl;
}

// The steps are for who looks on.
OnProgress progress_printer(const CommonOptions& common) {
    if (common.json) return {};
    return [](const std::string& text) { std::cerr << text << std::endl; };
}

}  // namespace

int run_resize(const CommonOptions& common, const ResizeOptions& options) {
    int exit_code = kExitOk;
    std::optional<Client> client = connect_or_report(common, exit_code);
    if (!client) return exit_code;
    Resize asked;
    asked.set_attention_workers(options.attention.value_or(0));
    asked.set_ffn_workers(options.ffn.value_or(0));
    asked.set_stop_first(options.stop_first);
    const Result<Resized> resized = client->resize(asked,
                                                   progress_printer(common),
                                                   to_milliseconds(options.timeout_s),
                                                   &interrupt_cancellation());
    if (!resized.ok()) return report_call_failure(common, *client, resized.error());
    print_resized(common, resized.value());
    return kExitOk;
}

int run_upgrade(const CommonOptions& common, const UpgradeOptions& options) {
    int exit_code = kExitOk;
    std::optional<Client> client = connect_or_report(common, exit_code);
    if (!client) return exit_code;
    const Result<Upgraded> upgraded = client->upgrade(
        progress_printer(common), to_milliseconds(options.timeout_s), &interrupt_cancellation());
    if (!upgraded.ok()) return report_call_failure(common, *client, upgraded.error());
    print_upgraded(common, upgraded.value());
    return kExitOk;
}

}  // namespace afd::client
