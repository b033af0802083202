// SPDX-License-Identifier: Apache-2.0
#pragma once

// Options: the command line of afd-quantize, checked: the words are among those named here, and
// they ask for one of its three jobs. It makes a checkpoint, or tells what one would be like
// (quantises()); it measures what options of afdd do (compares_serving()); or it writes the factors
// of a quantised cache (kv_scales). No file was looked at.

#include <optional>
#include <string>

#include "model/checkpoint/config.h"

namespace afd::tools {

struct Options {
    std::string model_dir;
    std::string experts = "bf16";      // Or int8, int4.
    std::string attention = "bf16";    // Or int8.
    std::string out;                   // Directory, or the file of kv_scales; empty: none named.
    std::string validate;              // Text to measure on; empty: none, as in the next two.
    std::string smooth;                // Text to even out the inputs of int8 experts on.
    std::string kv_dtype = "bf16";     // As afdd's: or int8, fp8, int8_channel.
    std::string kv_scales;             // Text to measure keys and values on.
    unsigned group = 32;               // Of int4: inputs that share a scale, 32 or 64.
    std::string scale_dtype = "bf16";  // Of int4: or fp16.
    bool shapes_int4 = false;          // One of the two before was given.
    unsigned threads = 0;              // At most 1024; 0: see num_threads().
    std::string int4_rows = "bf16";    // As afdd's: or int8.
    bool is_dry_run = false;

    // Measures what options of afdd do, on `validate`, and writes nothing.
    bool compares_serving() const;
    // Makes a checkpoint, or would if it were no dry run.
    bool quantises() const;
    // The formats to make.
    model::QuantisationConfig formats() const;
    // As many as were asked for; else one per core, from 1 to 64.
    unsigned num_threads() const;
};

// Reads the command line. No value: `exit_code` is what the program ends with, and what there is to
// say is said: 0 behind help or version, 2 behind a line with what is wrong: a word or a number
// that is not allowed, options of two jobs, or of none, that do not go together.
std::optional<Options> read_options(int argc, char** argv, int& exit_code);

}  // namespace afd::tools
