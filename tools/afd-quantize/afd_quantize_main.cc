// SPDX-License-Identifier: Apache-2.0
//
// afd-quantize: from a bf16 checkpoint one with int8 or int4 weights, and what it costs in
// perplexity on a text.

#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>
#include <string>
#include <thread>

#include "model/family/model_files.h"
#include "threads/thread_pool.h"
#include "tools/afd-quantize/perplexity.h"
#include "tools/afd-quantize/quantise_checkpoint.h"

namespace afd {
namespace {

constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;

struct Options {
    std::string model_dir;
    std::string experts = "bf16";
    std::string attention = "bf16";
    std::string out;
    std::string validate;
    std::string smooth;
    unsigned group = 32;
    std::string scale_dtype = "bf16";
    unsigned threads = 0;
};

// One line on stderr that says how far the work is; on a terminal it is rewritten in place, else
// written at most every ten seconds.
class Progress {
  public:
    explicit Progress(std::string what) : what_(std::move(what)) {}

    void show(double share) {
        const auto now = std::chrono::steady_clock::now();
        const bool is_due = now - shown_ >= (is_terminal_ ? kTerminalPeriod : kLogPeriod);
        if (!is_due && share < 1) return;
        if (share >= 1 && !is_shown_) return;
        shown_ = now;
        is_shown_ = true;
        fmt::print(stderr,
                   "{}{}: {:3.0f} %{}",
                   is_terminal_ ? "\r" : "",
                   what_,
                   share * 100,
                   is_terminal_ && share < 1 ? "" : "\n");
    }

  private:
    static constexpr std::chrono::milliseconds kTerminalPeriod{200};
    static constexpr std::chrono::milliseconds kLogPeriod{10'000};

    std::string what_;
    bool is_terminal_ = isatty(STDERR_FILENO) != 0;
    bool is_shown_ = false;
    std::chrono::steady_clock::time_point shown_ = std::chrono::steady_clock::now();
};

ops::WeightFormat int4_format(const Options& options) {
    using enum ops::WeightFormat;
    if (options.scale_dtype == "fp16") {
        return options.group == 64 ? kInt4Group64Fp16 : kInt4Group32Fp16;
    }
    return options.group == 64 ? kInt4Group64 : kInt4Group32;
}

Result<model::QuantisationConfig> wanted_formats(const Options& options) {
    model::QuantisationConfig wanted;
    if (options.experts == "int8") wanted.experts = ops::WeightFormat::kInt8;
    if (options.experts == "int4") {
        wanted.experts = int4_format(options);
    }
    if (options.attention == "int8") wanted.attention = ops::WeightFormat::kInt8;
    wanted.smooth = !options.smooth.empty();
    if (wanted.smooth && wanted.experts != ops::WeightFormat::kInt8) {
        return Error{Code::kInvalidArgument,
                     "--smooth is for experts whose input is quantised; give --experts int8, too"};
    }
    if (wanted != model::QuantisationConfig{}) return wanted;
    return Error{Code::kInvalidArgument,
                 "nothing to quantise: give --experts int8 or int4, --attention int8, or both"};
}

Result<Perplexity> measure(const std::string& directory, const Options& options) {
    Progress progress("perplexity of " + directory);
    return measure_perplexity(
        directory, options.validate, [&](double share) { progress.show(share); });
}

std::string mebibytes(uint64_t bytes) {
    return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

void print_perplexities(const Perplexity& before,
                        const Perplexity& after,
                        const std::string& file,
                        const std::string& formats) {
    fmt::print(
        "perplexity on {} ({} tokens in windows of {})\n", file, before.num_scored, before.window);
    fmt::print("  {:<32} {:9.4f}            {:.4f} bits per byte\n",
               "before",
               before.value,
               before.bits_per_byte);
    fmt::print("  {:<32} {:9.4f}  {:+7.2f} %  {:.4f} bits per byte\n",
               formats,
               after.value,
               (after.value / before.value - 1) * 100,
               after.bits_per_byte);
}

Result<> run(const Options& options) {
    AFD_ASSIGN(const model::QuantisationConfig wanted, wanted_formats(options));
    AFD_ASSIGN(const model::ModelFiles files, model::ModelFiles::open(options.model_dir));
    if (const std::string unused = files.unused_text(); !unused.empty()) {
        fmt::print(stderr, "{}; they are not copied\n", unused);
    }
    // Before the work, so that a wrong file name shows at once.
    std::optional<Perplexity> before;
    if (!options.validate.empty()) {
        AFD_ASSIGN(before, measure(options.model_dir, options));
    }
    ChannelRanges ranges;
    if (wanted.smooth) {
        Progress progress("calibrating on " + options.smooth);
        AFD_TRY(measure_perplexity(
            options.model_dir,
            options.smooth,
            [&](double share) { progress.show(share); },
            &ranges));
    }
    threads::ThreadPool parallel(
        options.threads != 0 ? options.threads : std::max(1U, std::thread::hardware_concurrency()));
    Progress progress("quantising");
    const double num_layers = files.config().num_layers;
    AFD_ASSIGN(const QuantiseResult result,
               quantise_checkpoint(
                   files,
                   wanted,
                   options.out,
                   parallel,
                   [&](uint32_t layers) { progress.show(layers / num_layers); },
                   kShardBytes,
                   ranges));
    fmt::print("{}: {}, {} of weights (before: {})\n",
               options.out,
               model::describe(result.formats),
               mebibytes(result.bytes_after),
               mebibytes(result.bytes_before));
    if (!before) return {};
    AFD_ASSIGN(const Perplexity after, measure(options.out, options));
    print_perplexities(*before, after, options.validate, model::describe(result.formats));
    return {};
}

int main_with(int argc, char** argv) {
    Options options;
    CLI::App app(
        "Writes a checkpoint with quantised weights, which afdd serves like any other.\n"
        "\n"
        "Examples:\n"
        "  afd-quantize MODEL --experts int8 --out MODEL-int8\n"
        "  afd-quantize MODEL --experts int4 --out MODEL-int4 --validate text.txt\n"
        "  afd-quantize MODEL --experts int8 --attention int8 --out MODEL-8bit\n"
        "  afd-quantize MODEL --experts int8 --smooth sample.txt --out MODEL-smooth\n"
        "\n"
        "int8: a scale per output channel. int4: a scale per group of inputs.\n"
        "docs/weights.md says what is quantised and what it costs.\n");
    app.add_option("model",
                   options.model_dir,
                   "Checkpoint in Hugging Face's layout: bf16, fp16, fp32 or fp8")
        ->required();
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
    app.add_option("--out", options.out, "Directory to make")->required();
    app.add_option(
        "--validate", options.validate, "Text to measure perplexity on, before and after");
    app.add_option("--threads", options.threads, "Threads; 0: one per core")->capture_default_str();
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : kExitUsage;
    }
    const Result<> result = run(options);
    if (result.ok()) return 0;
    fmt::print(stderr, "afd-quantize: {}\n", result.error().message);
    return kExitFailed;
}

}  // namespace
}  // namespace afd

int main(int argc, char** argv) {
    return afd::main_with(argc, argv);
}
