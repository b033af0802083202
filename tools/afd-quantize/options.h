// SPDX-License-Identifier: Apache-2.0
#pragma once

// Options: the command line of afd-quantize.

#include <optional>
#include <string>

#include "model/checkpoint/config.h"

namespace afd::tools {

struct Options {
    std::string model_dir;
    std::string experts = "bf16";    // Or int8, int4.
    std::string attention = "bf16";  // Or int8.
    std::string out;                 // Directory; the file, with kv_scales.
    std::string validate;            // Text to measure on; empty: none, as in the next two.
    std::string smooth;              // Text to even out the experts' inputs on.
    std::string kv_dtype = "bf16";   // As afdd's.
    std::string kv_scales;           // Text to measure keys and values on.
    unsigned group = 32;             // Of int4: inputs that share a scale.
    std::string scale_dtype = "bf16";
    bool shapes_int4 = false;  // One of the two before was given.
    unsigned threads = 0;      // 0: one per core.
    std::string int4_rows = "bf16";
    bool is_dry_run = false;

    // Measures what options of afdd do, and writes nothing.
    bool compares_serving() const;
    // Makes a checkpoint, or would if it were no dry run.
    bool quantises() const;
    // The formats to make.
    model::QuantisationConfig formats() const;
    unsigned num_threads() const;
};

// Reads the command line. No value: `exit_code` is what the program ends with, and what there is to
// say is said: help, or what is wrong.
std::optional<Options> read_options(int argc, char** argv, int& exit_code);

}  // namespace afd::tools
