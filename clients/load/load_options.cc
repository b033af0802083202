// SPDX-License-Identifier: Apache-2.0
#include "clients/load/load_options.h"

#include <fmt/core.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <string_view>
#include <utility>

#include "clients/exit_code.h"
#include "proto/typed_number.h"

namespace afd::client {
namespace {

constexpr const char* kFooter =
    "Examples:\n"
    "  afd-load                                    closed loop with 1, 2, 4 and 8 in flight\n"
    "  afd-load --concurrency 4 --requests 100 --max-tokens 16:64 --ignore-eos\n"
    "  afd-load --rate 2,4,8 --duration 20s        open loop, Poisson arrivals\n"
    "  afd-load --url http://127.0.0.1:8000 --chat any server with the OpenAI API\n"
    "Latencies of an open loop count from the intended arrival. ITL: the gap between consecutive\n"
    "tokens at the client; of a chunk with k tokens one has the gap, the others 0.\n"
    "Exit codes: 0 ok, 1 requests failed, 2 wrong usage, 4 client saturated (--strict), 5 cannot\n"
    "reach it, 130 interrupted (Ctrl-C or SIGTERM; what was measured is written)";

// Of a level: each has its time of arrival, and its result, in memory.
constexpr uint64_t kRequestsMax = 100'000'000;

// The values as typed; what they mean is checked after the parse.
struct Words {
    std::vector<uint32_t> concurrency;
    std::vector<double> rates;
    std::string duration = "5s";
    std::string max_tokens = "64";
    std::string request_timeout = "60s";
    uint64_t num_requests = 0;
};

afd::Error bad_value(const std::string& flag, const std::string& text, const std::string& allowed) {
    return {Code::kInvalidArgument, flag + " '" + text + "': " + allowed};
}

void add_flags(CLI::App& app, LoadOptions& options, Words& words) {
    app.add_option("--url", options.http.url, "Over HTTP: a server with the OpenAI API")
        ->type_name("http://HOST:PORT");
    app.add_flag("--chat", options.http.is_chat, "With --url: as chats, instead of completions");
    app.add_option("--model", options.http.model, "With --url; default: the first that it lists")
        ->type_name("NAME");
    app.add_option("--api-key", options.http.api_key, "With --url; others can see command lines")
        ->envname("AFD_API_KEY")
        ->type_name("KEY");
    take_whole_numbers(
        app.add_option("--concurrency", words.concurrency, "Closed loop: requests in flight"),
        1,
        65536)
        ->delimiter(',')
        ->type_name("N,...");
    take_numbers(
        app.add_option("--rate", words.rates, "Open loop: requests per second, Poisson arrivals"),
        1e-3,
        1e6)
        ->delimiter(',')
        ->type_name("R,...");
    auto* duration = app.add_option("--duration", words.duration, "Of each level: 500ms, 5s, 2m")
                         ->type_name("TIME")
                         ->capture_default_str();
    take_whole_numbers(
        app.add_option("--requests", words.num_requests, "Per level, instead of --duration"),
        1,
        kRequestsMax)
        ->excludes(duration);
    app.add_option("--prompts", options.prompts_path, "One prompt a line; default: afd's own")
        ->type_name("FILE");
    app.add_option("--max-tokens", words.max_tokens, "New tokens a request: N, or MIN:MAX uniform")
        ->type_name("N")
        ->capture_default_str();
    take_numbers(app.add_option("--temperature", options.workload.temperature, "0: greedy"), 0, 2)
        ->type_name("T");
    add_whole_number(
        app, "--seed", options.workload.seed, "Of prompts, lengths, arrivals and sampling")
        ->default_str(std::to_string(options.workload.seed));
    app.add_flag("--ignore-eos", options.workload.ignore_eos, "Always produce --max-tokens");
    add_whole_number(
        app, "--warmup", options.num_warmup, "Requests before the first level, not measured")
        ->default_str(std::to_string(options.num_warmup));
    app.add_option("--request-timeout", words.request_timeout, "A slower request has failed")
        ->type_name("TIME")
        ->capture_default_str();
    take_numbers(
        app.add_option(
            "--max-failed", options.failed_ratio_max, "Failed part that still exits with 0"),
        0,
        1)
        ->type_name("RATIO")
        ->capture_default_str();
    app.add_option("--out", options.out_dir, "For result.json, requests.csv [results/<time>]")
        ->type_name("DIR");
    app.add_flag("--strict", options.strict, "Exit with 4 if the client was the bottleneck");
    app.add_flag("--json", options.json, "Print the result as JSON instead of a table");
}

constexpr std::string_view kKeyFlag = "--api-key";

// Alone, or with its value.
bool is_key_flag(std::string_view word) {
    return word.substr(0, word.find('=')) == kKeyFlag;
}

// Not the variable, which a shell may have for other runs.
bool has_key_flag(const std::vector<std::string>& command_line) {
    return std::ranges::any_of(command_line, is_key_flag);
}

Result<> check_http(const LoadOptions& options) {
    const HttpOptions& http = options.http;
    if (!http.url.empty()) {
        const Result<HttpUrl> url = parse_http_url(http.url);
        if (!url.ok()) return afd::Error{url.error().code, "--url " + url.error().message};
        const bool has_socket = options.endpoint.socket_path.has_value();
        if (!has_socket && !options.endpoint.instance) return {};
        return afd::Error{Code::kInvalidArgument,
                          fmt::format("--url and {} name two ways; give one",
                                      has_socket ? "--socket" : "--instance")};
    }
    if (!http.is_chat && http.model.empty() && !has_key_flag(options.command_line)) return {};
    return afd::Error{
        Code::kInvalidArgument,
        "--chat, --model and --api-key are for HTTP; give --url http://HOST:PORT, too"};
}

// The command line goes into a file that people pass on.
std::vector<std::string> without_key(int argc, char** argv) {
    std::vector<std::string> words(argv, argv + argc);
    for (size_t i = 0; i < words.size(); ++i) {
        if (!is_key_flag(words[i])) continue;
        if (words[i] != kKeyFlag) {
            words[i] = std::string(kKeyFlag) + "=...";
        } else if (i + 1 < words.size()) {
            words[++i] = "...";
        }
    }
    return words;
}

// An open loop draws the arrivals of a level before it starts, and has at least one.
Result<> check_rates(const Words& words, std::chrono::microseconds duration) {
    if (words.num_requests > 0) return {};
    for (const double rate : words.rates) {
        const double num_requests = rate * static_cast<double>(duration.count()) / 1e6;
        // As written, 1 is not to fail by what floats make of it.
        if (num_requests < 1 - 1e-9) {
            return afd::Error{Code::kInvalidArgument,
                              fmt::format("--rate {:g} for --duration {} is less than one request; "
                                          "give --requests or a longer time",
                                          rate,
                                          words.duration)};
        }
        if (num_requests <= static_cast<double>(kRequestsMax)) continue;
        return afd::Error{Code::kInvalidArgument,
                          fmt::format("--rate {:g} for --duration {} is {:g} requests: at most {} "
                                      "are sent in a level; ask for a shorter time, or fewer",
                                      rate,
                                      words.duration,
                                      num_requests,
                                      kRequestsMax)};
    }
    return {};
}

Result<> check_words(const Words& words, LoadOptions& options) {
    for (const uint32_t concurrency : words.concurrency) options.levels.push_back({concurrency, 0});
    for (const double rate : words.rates) options.levels.push_back({0, rate});
    if (options.levels.empty()) options.levels = {{1, 0}, {2, 0}, {4, 0}, {8, 0}};
    if (words.num_requests > 0) options.extent.num_requests = words.num_requests;

    const Result<std::chrono::microseconds> duration = parse_duration(words.duration);
    if (!duration.ok()) return bad_value("--duration", words.duration, duration.error().message);
    options.extent.duration = duration.value();
    AFD_TRY(check_rates(words, duration.value()));
    const auto timeout = parse_duration(words.request_timeout);
    if (!timeout.ok()) {
        return bad_value("--request-timeout", words.request_timeout, timeout.error().message);
    }
    options.request_timeout = timeout.value();
    const auto range = parse_token_range(words.max_tokens);
    if (!range.ok()) return bad_value("--max-tokens", words.max_tokens, range.error().message);
    options.workload.max_tokens_low = range.value().first;
    options.workload.max_tokens_high = range.value().second;
    return {};
}

Result<> read_workload(LoadOptions& options) {
    if (options.prompts_path.empty()) {
        AFD_ASSIGN(options.prompts_path, default_prompts_path());
    }
    AFD_ASSIGN(options.workload.prompts, read_prompts(options.prompts_path));
    return {};
}

std::string default_out_dir() {
    const std::time_t now = std::time(nullptr);
    std::tm utc = {};
    gmtime_r(&now, &utc);
    char text[32];
    std::strftime(text, sizeof(text), "results/%Y%m%d-%H%M%S", &utc);
    return text;
}

}  // namespace

Result<std::chrono::microseconds> parse_duration(const std::string& text) {
    const size_t unit_begin = text.find_first_not_of("0123456789.");
    const std::string unit = unit_begin == std::string::npos ? "s" : text.substr(unit_begin);
    const double factor = unit == "ms"  ? 1e3
                          : unit == "s" ? 1e6
                          : unit == "m" ? 60e6
                          : unit == "h" ? 3'600e6
                                        : 0;
    const std::optional<double> value = finite_number(text.substr(0, unit_begin));
    const double us = value.value_or(0) * factor;
    if (us < 1000 || us > 86'400e6) {
        return afd::Error{Code::kInvalidArgument,
                          "must be a time from 1ms to 24h as 500ms, 5s, 2m or 1h"};
    }
    return std::chrono::microseconds(std::llround(us));
}

Result<std::pair<uint32_t, uint32_t>> parse_token_range(const std::string& text) {
    const size_t colon = text.find(':');
    const std::optional<uint64_t> low = whole_number(text.substr(0, colon));
    const std::optional<uint64_t> high =
        colon == std::string::npos ? low : whole_number(text.substr(colon + 1));
    if (!low || !high || *low < 1 || *low > *high || *high > UINT32_MAX) {
        return afd::Error{Code::kInvalidArgument,
                          "must be a number of at least 1, or MIN:MAX with MIN <= MAX"};
    }
    return std::pair(static_cast<uint32_t>(*low), static_cast<uint32_t>(*high));
}

std::optional<LoadOptions> parse_load_options(int argc, char** argv, int& exit_code) {
    LoadOptions options;
    options.num_warmup = 4;
    Words words;
    CLI::App app("Measures the speed and latencies of a running afdd, or another server.",
                 "afd-load");
    app.footer(kFooter);
    app.set_version_flag("--version", "afd-load " AFD_VERSION);
    app.allow_extras();
    options.endpoint.add_to(app);
    add_flags(app, options, words);
    if (const auto code = parse_command_line(app, argc, argv)) {
        exit_code = *code;
        return std::nullopt;
    }
    options.command_line = without_key(argc, argv);
    Result<> checked = check_http(options);
    if (checked.ok()) checked = check_words(words, options);
    if (checked.ok()) checked = read_workload(options);
    if (!checked.ok()) {
        print_error(checked.error());
        exit_code = kExitUsage;
        return std::nullopt;
    }
    if (options.out_dir.empty()) options.out_dir = default_out_dir();
    return options;
}

}  // namespace afd::client
