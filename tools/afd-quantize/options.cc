// SPDX-License-Identifier: Apache-2.0
#include "tools/afd-quantize/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <thread>

#include "proto/command_words.h"
#include "proto/usage_error.h"
#include "tools/number_option.h"

namespace afd::tools {
namespace {

constexpr int kExitUsage = 2;

// More would wait for the disk, and each takes memory of its own.
constexpr unsigned kThreadsMax = 64;
// Who gives a number may want more, but a system refuses some number of them.
constexpr int kThreadsGivenMax = 1024;

constexpr const char* kHelp =
    "Writes a checkpoint with quantised weights, which afdd serves like any other.\n"
    "\n"
    "Examples:\n"
    "  afd-quantize MODEL --experts int8 --out MODEL-int8\n"
    "  afd-quantize MODEL --experts int4 --out MODEL-int4 --validate text.txt\n"
    "  afd-quantize MODEL --experts int8 --attention int8 --out MODEL-8bit\n"
    "  afd-quantize MODEL --experts int8 --smooth sample.txt --out MODEL-smooth\n"
    "  afd-quantize MODEL --kv-dtype int8 --validate text.txt\n"
    "  afd-quantize MODEL --kv-scales text.txt\n"
    "\n"
    "A run that was interrupted goes on when it is started again as it was.\n"
    "int8: a scale per output channel. int4: a scale per group of inputs.\n"
    "What memory need not hold of a text goes into files without a name: in --out DIR, beside\n"
    "the file of --kv-scales, or with --kv-dtype and --int4-rows in TMPDIR (/tmp).\n"
    "docs/weights.md says what is quantised and what it costs.\n";

ops::WeightFormat int4_format(const Options& options) {
    using enum ops::WeightFormat;
    if (options.scale_dtype == "fp16") {
        return options.group == 64 ? kInt4Group64Fp16 : kInt4Group32Fp16;
    }
    return options.group == 64 ? kInt4Group64 : kInt4Group32;
}

// What is quantised, and how.
void add_format_options(CLI::App& app, Options& options) {
    app.add_option(
           "--experts", options.experts, "MLPs of all layers: int8, int4, or bf16: as they are")
        ->check(CLI::IsMember({"bf16", "int8", "int4"}))
        ->capture_default_str();
    app.add_option("--group", options.group, "int4: inputs that share a scale, 32 or 64")
        ->check(CLI::IsMember({32, 64}))
        ->capture_default_str();
    app.add_option("--scale-dtype",
                   options.scale_dtype,
                   "int4: bf16, rounded to five bits, or fp16 in full, which is slower")
        ->check(CLI::IsMember({"bf16", "fp16"}))
        ->capture_default_str();
    app.add_option("--attention",
                   options.attention,
                   "q, kv_a (or k and v) and o projections: int8, or bf16: as they are")
        ->check(CLI::IsMember({"bf16", "int8"}))
        ->capture_default_str();
    app.add_option("--smooth",
                   options.smooth,
                   "int8 experts: even out their input's channels, as large as on this text");
}

void add_options(CLI::App& app, Options& options) {
    app.add_option("model",
                   options.model_dir,
                   "Checkpoint in Hugging Face's layout: bf16, fp16, fp32, fp8, or quantised by "
                   "GPTQ, AWQ or compressed-tensors")
        ->required();
    add_format_options(app, options);
    app.add_option("--out", options.out, "Directory to make, or to go on with");
    app.add_option(
        "--validate", options.validate, "Text to measure perplexity on, before and after");
    app.add_option("--kv-dtype",
                   options.kv_dtype,
                   "Write nothing; with --validate: the perplexity with this kv_dtype of afdd")
        ->check(CLI::IsMember({"bf16", "int8", "fp8", "int8_channel"}))
        ->capture_default_str();
    app.add_option("--int4-rows",
                   options.int4_rows,
                   "Write nothing; with --validate: the perplexity with this int4_rows of afdd")
        ->check(CLI::IsMember({"bf16", "int8"}))
        ->capture_default_str();
    app.add_option("--kv-scales",
                   options.kv_scales,
                   "Write the factors of kv_dtype int8_channel, measured on this text, into the "
                   "model's directory, or --out FILE");
    app.add_option("--threads", options.threads, "Threads; 0: one per core, at most 64")
        ->transform(whole_from(0, kThreadsGivenMax))
        ->capture_default_str();
    app.add_flag("--dry-run",
                 options.is_dry_run,
                 "Write nothing; print the sizes and the memory that serving will need");
}

// What is wrong with the options together; empty: nothing.
std::string misuse_of(const Options& options) {
    const bool compares = options.compares_serving();
    if (options.shapes_int4 && options.experts != "int4") {
        return "--group and --scale-dtype say what int4 weights are like; give --experts int4, "
               "too, or leave them out";
    }
    if (!options.kv_scales.empty()) {
        if (!options.quantises() && !compares && options.validate.empty()) return "";
        return "--kv-scales is a job of its own: it goes with no --experts, --attention, --smooth, "
               "--dry-run, --kv-dtype, --int4-rows or --validate";
    }
    if (compares) {
        const bool writes = options.quantises() || !options.out.empty();
        if (!options.validate.empty() && !writes) return "";
        return "--kv-dtype and --int4-rows need --validate, and go without --out, --experts, "
               "--attention, --smooth and --dry-run: they measure what afdd's options do to the "
               "model, and write nothing";
    }
    if (options.out.empty() && !options.is_dry_run) return "--out is required, or --dry-run";
    if (!options.smooth.empty() && options.experts != "int8") {
        return "--smooth is for experts whose input is quantised; give --experts int8, too";
    }
    if (options.experts == "bf16" && options.attention == "bf16") {
        return "nothing to quantise: give --experts int8 or int4, --attention int8, or both";
    }
    return "";
}

}  // namespace

bool Options::compares_serving() const {
    return kv_dtype != "bf16" || int4_rows != "bf16";
}

bool Options::quantises() const {
    return experts != "bf16" || attention != "bf16" || !smooth.empty() || is_dry_run;
}

model::QuantisationConfig Options::formats() const {
    model::QuantisationConfig wanted;
    if (experts == "int8") wanted.experts = ops::WeightFormat::kInt8;
    if (experts == "int4") wanted.experts = int4_format(*this);
    if (attention == "int8") wanted.attention = ops::WeightFormat::kInt8;
    wanted.smooth = !smooth.empty();
    return wanted;
}

unsigned Options::num_threads() const {
    return threads != 0 ? threads
                        : std::clamp(std::thread::hardware_concurrency(), 1U, kThreadsMax);
}

std::optional<Options> read_options(int argc, char** argv, int& exit_code) {
    Options options;
    CLI::App app(kHelp, "afd-quantize");
    app.set_version_flag("--version", "afd-quantize " AFD_VERSION);
    add_options(app, options);
    try {
        parse_words(app, argc, argv);
    } catch (const CLI::ParseError& error) {
        exit_code = end_parse(app, error, "afd-quantize", kExitUsage);
        return std::nullopt;
    }
    options.shapes_int4 = app.count("--group") + app.count("--scale-dtype") > 0;
    if (const std::string misuse = misuse_of(options); !misuse.empty()) {
        std::fprintf(stderr, "afd-quantize: %s\n", misuse.c_str());
        exit_code = kExitUsage;
        return std::nullopt;
    }
    return options;
}

}  // namespace afd::tools
