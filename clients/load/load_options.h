// SPDX-License-Identifier: Apache-2.0
#pragma once

// LoadOptions: the command line of afd-load, checked; what it leaves out is filled in, the prompts
// are read. Whether anybody answers where it points is not asked here.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "clients/command_line.h"
#include "clients/load/http_target.h"
#include "clients/load/level_result.h"
#include "clients/load/level_run.h"
#include "clients/load/workload.h"
#include "proto/status.h"

namespace afd::client {

struct LoadOptions {
    EndpointFlags endpoint;
    HttpOptions http;  // With a URL, which is valid: instead of `endpoint`, which then is empty.
    // One or more, closed ones first: up to 65536 in flight, or from 0.001 to a million a second.
    std::vector<Level> levels;
    LevelExtent extent;        // At most 100 million num_requests; 1 ms to 24 h.
    std::string prompts_path;  // Where the prompts came from.
    Workload workload;         // Temperature from 0 to 2.
    uint64_t num_warmup = 0;
    std::chrono::microseconds request_timeout{0};  // 1 ms to 24 h.
    double failed_ratio_max = 0;                   // From 0 to 1.
    std::string out_dir;                           // Not made yet; never empty.
    bool strict = false;
    bool json = false;
    std::vector<std::string> command_line;  // As given, without the API key, for the report.
};

// Parses the command line and reads the prompts. Returns: the options; or nothing, and `exit_code`
// is what the program ends with: kExitOk behind the help or the version, kExitUsage behind an error
// of one line. Errors are a word or a number that is none, numbers out of their ranges, flags that
// go only with --url or not with it, a rate whose duration has too many requests or less than one,
// prompts that cannot be read.
std::optional<LoadOptions> parse_load_options(int argc, char** argv, int& exit_code);

// "500ms", "5s", "2m", "1h"; a plain number is seconds. From 1 ms to 24 h.
// Errors: kInvalidArgument naming what is allowed.
Result<std::chrono::microseconds> parse_duration(const std::string& text);

// "64" or "16:128": the lowest and the highest, at least 1 each.
// Errors: kInvalidArgument naming what is allowed.
Result<std::pair<uint32_t, uint32_t>> parse_token_range(const std::string& text);

}  // namespace afd::client
