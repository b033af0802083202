// SPDX-License-Identifier: Apache-2.0
#pragma once

// `afd-op run`: one operator on the tensors of a safetensors file.

#include <cstdint>
#include <string>

#include "proto/status.h"

namespace CLI {
class App;
}

namespace afd::tools {

struct RunOptions {
    std::string name;
    std::string in_path;  // Empty: no inputs.
    std::string out_path;
    std::string attributes = "{}";
    bool is_reference = false;
    std::string numeric_class = "auto";  // auto: the processor's best.
    unsigned num_threads = 1;
    uint64_t memory_max = 0;  // 0: what is available.
    uint32_t repeat = 0;      // 0: once, without times.
};

// Adds the subcommand; `options` outlives the parsing.
CLI::App* add_run_command(CLI::App& app, RunOptions& options);

// Errors: those of the files and of the operator; then no file was written.
Result<> run_operator(const RunOptions& options);

}  // namespace afd::tools
