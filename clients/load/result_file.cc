// SPDX-License-Identifier: Apache-2.0
#include "clients/load/result_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

namespace afd::client {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kResultName = "result.json";

const char* outcome_name(Outcome outcome) {
    switch (outcome) {
        case Outcome::kOk:
            return "ok";
        case Outcome::kFailed:
            return "failed";
        case Outcome::kCancelled:
            return "cancelled";
    }
    return "unknown";
}

std::string iso_time(std::chrono::system_clock::time_point time) {
    const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
    std::tm utc = {};
    gmtime_r(&seconds, &utc);
    char text[32];
    std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &utc);
    return text;
}

Json histogram_json(const Histogram& histogram) {
    Json object;
    object["count"] = histogram.count();
    object["mean"] = histogram.mean();
    object["min"] = histogram.min();
    for (const double percentile : {50.0, 90.0, 95.0, 99.0, 99.9}) {
        object[fmt::format("p{:g}", percentile)] = histogram.value_at(percentile);
    }
    object["max"] = histogram.max();
    object["histogram"] = histogram.buckets();
    return object;
}

Json level_json(const LevelResult& result) {
    Json level;
    level["name"] = result.level.name();
    level["mode"] = result.level.is_open() ? "open" : "closed";
    if (result.level.is_open()) {
        level["rate"] = result.level.rate;
    } else {
        level["concurrency"] = result.level.concurrency;
    }
    level["interrupted"] = result.interrupted;
    level["broken"] = result.broken;
    level["num_requests"] = result.requests.size();
    level["num_ok"] = result.num_with(Outcome::kOk);
    level["num_failed"] = result.num_with(Outcome::kFailed);
    level["num_cancelled"] = result.num_with(Outcome::kCancelled);
    level["elapsed_us"] = result.elapsed_us;
    level["num_prompt_tokens"] = result.num_prompt_tokens();
    level["num_cached_tokens"] = result.num_cached_tokens();
    level["num_output_tokens"] = result.num_output_tokens();
    level["num_guessed"] = result.num_guessed;
    level["requests_per_s"] = result.requests_per_s();
    level["output_tokens_per_s"] = result.output_tokens_per_s();
    level["ttft_us"] = histogram_json(result.ttft_us);
    level["itl_us"] = histogram_json(result.itl_us);
    level["itl_spread_us"] = histogram_json(result.itl_spread_us);
    level["e2e_us"] = histogram_json(result.e2e_us);
    const std::string saturation = result.saturation();
    level["client"] = {{"is_saturated", !saturation.empty()},
                       {"reason", saturation},
                       {"busy_ratio", result.client.busy_ratio},
                       {"loop_stall_us", result.client.loop_stall_us},
                       {"lag_us", histogram_json(result.client.lag_us)}};
    level["errors"] = Json::array();
    for (const auto& [kind, group] : result.errors()) {
        level["errors"].push_back({{"kind", kind},
                                   {"code", std::string(code_name(group.code))},
                                   {"count", group.count},
                                   {"sample", group.sample}});
    }
    return level;
}

Json config_json(const LoadOptions& options) {
    Json config;
    config["command_line"] = options.command_line;
    config["prompts"] = options.prompts_path;
    config["num_prompts"] = options.workload.prompts.size();
    if (options.extent.num_requests) {
        config["requests_per_level"] = *options.extent.num_requests;
    } else {
        config["duration_us"] = options.extent.duration.count();
    }
    config["max_tokens_low"] = options.workload.max_tokens_low;
    config["max_tokens_high"] = options.workload.max_tokens_high;
    config["temperature"] = options.workload.temperature;
    config["ignore_eos"] = options.workload.ignore_eos;
    config["seed"] = options.workload.seed;
    config["num_warmup"] = options.num_warmup;
    config["request_timeout_us"] = options.request_timeout.count();
    return config;
}

Json server_json(const Status& status) {
    Json server;
    server["version"] = status.version();
    server["instance"] = status.instance();
    server["model"] = status.model();
    server["topology"] = status.topology();
    server["router"] = status.router();
    server["shared_experts"] = status.shared_experts();
    server["kv_dtype"] = status.kv_dtype();
    server["dispatch_dtype"] = status.dispatch_dtype();
    server["numeric_class"] = status.numeric_class();
    server["context_length"] = status.context_length();
    server["workers"] = Json::array();
    for (const Worker& worker : status.workers()) {
        server["workers"].push_back({{"role", worker.role()},
                                     {"index", worker.index()},
                                     {"kv_tokens_total", worker.kv_tokens_total()}});
    }
    return server;
}

Json http_server_json(const HttpTarget& target) {
    Json server;
    server["url"] = "http://" + target.url.authority() + target.url.prefix;
    server["api"] = target.options.is_chat ? "chat" : "completions";
    server["model"] = target.options.model;
    server["model_root"] = target.model_root;
    server["context_length"] = target.context_length;
    server["software"] = target.software;
    server["takes_token_ids"] = target.takes_token_ids;
    server["takes_usage"] = target.takes_usage;
    return server;
}

// A CSV field in quotes, its own quotes doubled.
std::string csv_text(const std::string& text) {
    if (text.empty()) return "";
    std::string quoted = "\"";
    for (const char c : text) {
        if (c == '"') quoted += '"';
        quoted += c == '\n' || c == '\r' ? ' ' : c;
    }
    return quoted + "\"";
}

std::filesystem::path part_of(const std::filesystem::path& path) {
    return path.string() + ".part";
}

Result<> create_new(const std::filesystem::path& path) {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd >= 0) {
        ::close(fd);
        return {};
    }
    const int number = errno;
    if (number == EEXIST) {
        return afd::Error{Code::kAlreadyExists,
                          "'" + path.string() +
                              "' exists: another afd-load writes there, or was killed; choose "
                              "another directory with --out DIR, or remove it"};
    }
    return afd::Error{Code::kPermissionDenied,
                      "cannot write '" + path.string() + "': " + std::strerror(number) +
                          "; choose another directory with --out DIR"};
}

Result<> write_file(const std::filesystem::path& path, const std::string& text) {
    const std::filesystem::path temporary = part_of(path);
    std::ofstream file(temporary, std::ios::binary | std::ios::trunc);
    file << text;
    file.close();
    std::error_code error(errno, std::generic_category());
    if (file) {
        error.clear();
        std::filesystem::rename(temporary, path, error);
    }
    if (!error) return {};
    std::error_code ignored;
    std::filesystem::remove(temporary, ignored);
    return afd::Error{Code::kResourceExhausted,
                      "cannot write '" + path.string() + "': " + error.message() +
                          "; free space, or choose another disk with --out DIR"};
}

}  // namespace

std::string result_json(const LoadReport& report) {
    Json object;
    object["schema"] = kResultSchema;
    object["version"] = AFD_VERSION;
    object["started_at"] = iso_time(report.started_at);
    object["machine"] = {{"cpu_model", report.machine.cpu_model},
                         {"num_cores", report.machine.num_cores},
                         {"memory_bytes", report.machine.memory_bytes},
                         {"kernel", report.machine.kernel}};
    object["server"] =
        report.http_server ? http_server_json(*report.http_server) : server_json(report.server);
    object["config"] = config_json(report.options);
    object["levels"] = Json::array();
    for (const LevelResult& level : report.levels) object["levels"].push_back(level_json(level));
    return object.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string requests_csv(const LoadReport& report) {
    std::string text =
        "level,index,prompt_index,max_tokens,intended_us,sent_us,first_token_us,end_us,num_chunks,"
        "num_tokens,num_prompt_tokens,num_cached_tokens,outcome,error_code,failure,error\n";
    for (const LevelResult& level : report.levels) {
        for (const RequestRecord& request : level.requests) {
            text += fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}\n",
                                level.level.name(),
                                request.index,
                                request.prompt_index,
                                request.max_tokens,
                                request.intended_us,
                                request.sent_us,
                                request.first_token_us,
                                request.end_us,
                                request.num_chunks,
                                request.num_tokens,
                                request.num_prompt_tokens,
                                request.num_cached_tokens,
                                outcome_name(request.outcome),
                                static_cast<int>(request.failure.error.code),
                                csv_text(request.failure.kind),
                                csv_text(request.failure.error.message));
        }
    }
    return text;
}

Result<> prepare_result_directory(const std::string& directory) {
    std::error_code error;
    std::filesystem::create_directories(directory, error);
    if (error) {
        return afd::Error{Code::kPermissionDenied,
                          "cannot make the directory '" + directory + "': " + error.message() +
                              "; choose another with --out DIR"};
    }
    const std::filesystem::path result = std::filesystem::path(directory) / kResultName;
    AFD_TRY(create_new(part_of(result)));
    // In this order: whoever else had the part until now has made the result of it.
    if (std::filesystem::exists(result, error)) {
        std::filesystem::remove(part_of(result), error);
        return afd::Error{Code::kAlreadyExists,
                          "'" + result.string() +
                              "' exists; choose another directory with --out DIR, or remove it"};
    }
    return {};
}

Result<> write_result_files(const LoadReport& report) {
    const std::filesystem::path directory = report.options.out_dir;
    // result.json comes last: a directory that has one counts as complete, and is not written to
    // again. It is tried in any case: nothing else has what was measured.
    Result<> requests = write_file(directory / "requests.csv", requests_csv(report));
    Result<> result = write_file(directory / kResultName, result_json(report));
    return requests.ok() ? std::move(result) : std::move(requests);
}

}  // namespace afd::client
