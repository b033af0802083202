// SPDX-License-Identifier: Apache-2.0
#pragma once

// The command line of afd-load, checked.

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
    HttpOptions http;  // With a URL: instead of `endpoint`.
    std::vector<Level> levels;
    LevelExtent extent;
    std::string prompts_path;
    Workload workload;  // With the prompts read.
    uint64_t num_warmup = 0;
    std::chrono::microseconds request_timeout{0};
    double failed_ratio_max = 0;
    std::string out_dir;
    bool strict = false;
    bool json = false;
    std::vector<std::string> command_line;  // As given, without the API key, for the report.
};

// Parses the command line and reads the prompts; prints help or an error itself.
// Returns: the options, or the exit code with which the program ends now.
std::optional<LoadOptions> parse_load_options(int argc, char** argv, int& exit_code);

// "500ms", "5s", "2m", "1h"; a plain number is seconds.
// Errors: kInvalidArgument naming what is allowed.
Result<std::chrono::microseconds> parse_duration(const std::string& text);

// "64" or "16:128". Errors: kInvalidArgument naming what is allowed.
Result<std::pair<uint32_t, uint32_t>> parse_token_range(const std::string& text);

}  // namespace afd::client
