// SPDX-License-Identifier: Apache-2.0
//
// afd-quantize: from a checkpoint one with int8 or int4 weights, and what it costs in perplexity on
// a text.

#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "model/decoder/attention_half.h"
#include "model/decoder/serving_memory.h"
#include "model/family/model_files.h"
#include "model/safetensors/whole_file.h"
#include "model/tokenizer/tokenizer.h"
#include "ops/format/int4_rows.h"
#include "ops/format/kv_dtype.h"
#include "proto/usage_error.h"
#include "threads/thread_pool.h"
#include "tools/afd-quantize/companion_files.h"
#include "tools/afd-quantize/kv_scales.h"
#include "tools/afd-quantize/perplexity.h"
#include "tools/afd-quantize/quantise_checkpoint.h"
#include "tools/afd-quantize/quantise_plan.h"
#include "tools/afd-quantize/result_directory.h"
#include "tools/afd-quantize/text_sample.h"
#include "tools/number_option.h"

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
    std::string kv_dtype = "bf16";
    std::string kv_scales;
    unsigned group = 32;
    std::string scale_dtype = "bf16";
    bool shapes_int4 = false;  // One of the two before was given.
    unsigned threads = 0;
    std::string int4_rows = "bf16";
    bool is_dry_run = false;

    bool compares_serving() const { return kv_dtype != "bf16" || int4_rows != "bf16"; }
    // Or would, if it were no dry run.
    bool quantises() const {
        return experts != "bf16" || attention != "bf16" || !smooth.empty() || is_dry_run;
    }
};

// More would wait for the disk, and each takes memory of its own.
constexpr unsigned kThreadsMax = 64;
// Who gives a number may want more, but a system refuses some number of them.
constexpr int kThreadsGivenMax = 1024;

// One line on stderr that says how far the work is and how long it will take; on a terminal it is
// rewritten in place, else written at most every ten seconds.
class Progress {
  public:
    explicit Progress(std::string what) : what_(std::move(what)) {}

    void show(double share) {
        const Clock::time_point now = Clock::now();
        // What an earlier run did says nothing about the speed of this one.
        if (!first_share_) {
            first_share_ = share;
            begin_ = now;
        }
        const bool is_due = now - shown_ >= (is_terminal_ ? kTerminalPeriod : kLogPeriod);
        if (!is_due && share < 1) return;
        if (share >= 1 && !is_shown_) return;
        shown_ = now;
        is_shown_ = true;
        fmt::print(stderr,
                   "{}{}: {:3.0f} %{}{}",
                   is_terminal_ ? "\r\x1b[K" : "",
                   what_,
                   share * 100,
                   left(now, share),
                   is_terminal_ && share < 1 ? "" : "\n");
    }

  private:
    using Clock = std::chrono::steady_clock;
    static constexpr std::chrono::milliseconds kTerminalPeriod{200};
    static constexpr std::chrono::milliseconds kLogPeriod{10'000};

    std::string left(Clock::time_point now, double share) const {
        if (share >= 1 || share <= *first_share_) return "";
        const std::chrono::duration<double> passed = now - begin_;
        const double seconds = passed.count() * (1 - share) / (share - *first_share_);
        return seconds < 90 ? fmt::format(", about {:.0f} s left", seconds)
                            : fmt::format(", about {:.0f} min left", seconds / 60);
    }

    std::string what_;
    bool is_terminal_ = isatty(STDERR_FILENO) != 0;
    bool is_shown_ = false;
    std::optional<double> first_share_;
    Clock::time_point begin_ = Clock::now();  // When first_share_ was.
    Clock::time_point shown_ = begin_;
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

std::string size_text(uint64_t bytes) {
    const double mebibytes = static_cast<double>(bytes) / (1u << 20);
    return mebibytes < 1024 ? fmt::format("{:.1f} MiB", mebibytes)
                            : fmt::format("{:.2f} GiB", mebibytes / 1024);
}

// The texts that a new checkpoint is made and measured with.
struct Texts {
    std::optional<TextSample> smooth;
    std::optional<TextSample> validate;
};

Result<Texts> read_texts(const Options& options, const model::ModelConfig& config) {
    Texts texts;
    if (options.smooth.empty() && options.validate.empty()) return texts;
    AFD_ASSIGN(model::Tokenizer tokenizer, model::Tokenizer::load(options.model_dir));
    if (!options.smooth.empty()) {
        AFD_ASSIGN(texts.smooth, TextSample::read(options.smooth, tokenizer, config));
    }
    if (!options.validate.empty()) {
        AFD_ASSIGN(texts.validate, TextSample::read(options.validate, tokenizer, config));
    }
    return texts;
}

// Of the model before, which an interrupted run may have measured already.
Result<Perplexity> perplexity_before(const Options& options,
                                     const TextSample& text,
                                     ResultDirectory& directory,
                                     ops::Parallel& parallel) {
    if (const auto known = directory.perplexity(text.hash)) return *known;
    Progress progress("perplexity of " + options.model_dir);
    AFD_ASSIGN(const Perplexity measured,
               measure_perplexity(
                   options.model_dir, text, directory.scratch(), parallel, [&](double share) {
                       progress.show(share);
                   }));
    AFD_TRY(directory.keep(text.hash, measured));
    return measured;
}

Result<Perplexity> perplexity_after(const Options& options,
                                    const TextSample& text,
                                    const ResultDirectory& directory,
                                    ops::Parallel& parallel) {
    Progress progress("perplexity of " + options.out);
    return measure_perplexity(options.out, text, directory.scratch(), parallel, [&](double share) {
        progress.show(share);
    });
}

Result<ChannelRanges> channel_ranges(const Options& options,
                                     const std::optional<TextSample>& text,
                                     const model::ModelConfig& config,
                                     ResultDirectory& directory,
                                     ops::Parallel& parallel) {
    ChannelRanges ranges;
    if (!text) return ranges;
    if (auto known = directory.ranges(config.num_layers, config.hidden)) return *std::move(known);
    Progress progress("calibrating on " + text->path);
    AFD_TRY(measure_perplexity(options.model_dir,
                               *text,
                               directory.scratch(),
                               parallel,
                               [&](double share) { progress.show(share); },
                               {.ranges = &ranges, .on_cache = {}}));
    AFD_TRY(directory.keep(ranges));
    return ranges;
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

Result<> dry_run(const model::ModelFiles& files, const model::QuantisationConfig& wanted) {
    AFD_ASSIGN(const QuantisePlan plan, QuantisePlan::make(files, wanted));
    const model::ServingMemory memory = model::serving_memory(files, plan.formats());
    fmt::print("{}: {}, {} of weights\n",
               files.directory(),
               model::describe(files.config().quantisation),
               size_text(files.tensors().total_bytes()));
    fmt::print("result: {}, {} in {} file{}\n",
               model::describe(plan.formats()),
               size_text(plan.result_bytes()),
               plan.num_shards(),
               plan.num_shards() == 1 ? "" : "s");
    fmt::print("memory to serve it:\n");
    fmt::print("  {:>10}  FFN workers, all together: experts, shared through the weight cache\n",
               size_text(memory.experts));
    fmt::print("  {:>10}  each attention worker: embedding, attention, routers, head\n",
               size_text(memory.attention));
    fmt::print("  {:>6.1f} KiB  KV cache, a token of context\n",
               static_cast<double>(memory.kv_bytes_per_token) / 1024);
    if (memory.kv_windowed_bytes_per_token > 0) {
        fmt::print(
            "  {:>6.1f} KiB  of that in layers with a window, at most {} tokens a sequence\n",
            static_cast<double>(memory.kv_windowed_bytes_per_token) / 1024,
            memory.kv_windowed_tokens);
    }
    return {};
}

unsigned num_threads(const Options& options) {
    return options.threads != 0 ? options.threads
                                : std::clamp(std::thread::hardware_concurrency(), 1U, kThreadsMax);
}

// Where rows go that memory need not hold, when nothing else is written.
Result<std::string> temporary_directory() {
    std::error_code error;
    const std::filesystem::path path = std::filesystem::temp_directory_path(error);
    if (!error) return path.string();
    const char* wanted = std::getenv("TMPDIR");
    return Error{Code::kNotFound,
                 fmt::format("{}: {}; set TMPDIR to a directory with room for what memory need not "
                             "hold",
                             wanted == nullptr ? "/tmp" : fmt::format("TMPDIR={}", wanted),
                             error.message())};
}

// --kv-dtype and --int4-rows: nothing is written, since both are afdd's choice.
Result<> compare_serving(const Options& options) {
    const PerplexityOptions wanted{
        .kv = ops::parse_kv_dtype(options.kv_dtype).value_or(ops::KvDtype::kBf16),
        .int4_rows = ops::parse_int4_rows(options.int4_rows).value_or(ops::Int4Rows::kBf16)};
    AFD_ASSIGN(model::ModelFiles files, model::ModelFiles::open(options.model_dir, wanted.kv));
    AFD_TRY(files.set_int4_rows(wanted.int4_rows));
    AFD_ASSIGN(const model::ModelConfig before, model::load_model_config(options.model_dir));
    AFD_ASSIGN(const Texts texts, read_texts(options, before));
    AFD_ASSIGN(const std::string scratch, temporary_directory());
    threads::ThreadPool parallel(num_threads(options));
    const auto measure = [&](const PerplexityOptions& how) {
        Progress progress(fmt::format("perplexity with kv {}, int4 rows {}",
                                      ops::name_of(how.kv),
                                      ops::name_of(how.int4_rows)));
        return measure_perplexity(
            options.model_dir,
            *texts.validate,
            scratch,
            parallel,
            [&](double share) { progress.show(share); },
            how);
    };
    AFD_ASSIGN(const Perplexity plain, measure({}));
    AFD_ASSIGN(const Perplexity quantised, measure(wanted));
    print_perplexities(
        plain, quantised, options.validate, model::describe(files.config().quantisation));
    if (wanted.kv == ops::KvDtype::kBf16) return {};
    fmt::print("KV cache, a token of context: {} bytes (before: {})\n",
               model::kv_shape(files.config()).bytes_per_token(),
               model::kv_shape(before).bytes_per_token());
    return {};
}

// --kv-scales: beside the weights, where kv_dtype = int8_channel looks for it.
Result<> measure_kv_scales(const Options& options) {
    const std::string path =
        options.out.empty() ? options.model_dir + "/" + model::kKvScalesFile : options.out;
    // Before hours of work.
    auto file = model::WholeFile::create(path);
    if (!file.ok()) {
        return Error{file.error().code, file.error().message + "; --out FILE names another place"};
    }
    AFD_ASSIGN(const model::ModelConfig config, model::load_model_config(options.model_dir));
    AFD_ASSIGN(model::Tokenizer tokenizer, model::Tokenizer::load(options.model_dir));
    AFD_ASSIGN(const TextSample text, TextSample::read(options.kv_scales, tokenizer, config));
    // Beside the result, too, which shows now whether that can be written.
    const std::string folder = std::filesystem::path(path).parent_path().string();
    threads::ThreadPool parallel(num_threads(options));
    Progress progress("measuring keys and values on " + options.kv_scales);
    AFD_TRY(write_kv_scales(options.model_dir,
                            text,
                            std::move(file).value(),
                            folder.empty() ? "." : folder,
                            parallel,
                            [&](double share) { progress.show(share); }));
    fmt::print("{}: a factor for each channel of the KV cache, for kv_dtype = int8_channel\n",
               path);
    return {};
}

Result<> run(const Options& options) {
    if (!options.kv_scales.empty()) return measure_kv_scales(options);
    if (options.compares_serving()) return compare_serving(options);
    AFD_ASSIGN(const model::QuantisationConfig wanted, wanted_formats(options));
    AFD_ASSIGN(const model::ModelFiles files, model::ModelFiles::open(options.model_dir));
    if (const std::string unused = files.unused_text(); !unused.empty()) {
        fmt::print(stderr, "{}; they are not copied\n", unused);
    }
    if (options.is_dry_run) return dry_run(files, wanted);
    // Before the work, so that what cannot be done shows at once.
    AFD_ASSIGN(const QuantisePlan plan, QuantisePlan::make(files, wanted));
    AFD_ASSIGN(const Texts texts, read_texts(options, files.config()));
    AFD_ASSIGN(const CompanionFiles companions, CompanionFiles::read(options.model_dir));
    const std::string job =
        describe_job(files, wanted, texts.smooth ? texts.smooth->hash : std::string());
    AFD_ASSIGN(ResultDirectory directory, ResultDirectory::open(options.out, job));
    if (directory.units_done() > 0) {
        fmt::print(stderr, "{}: goes on with what an earlier run left\n", options.out);
    }
    threads::ThreadPool parallel(num_threads(options));
    std::optional<Perplexity> before;
    if (texts.validate) {
        AFD_ASSIGN(before, perplexity_before(options, *texts.validate, directory, parallel));
    }
    AFD_ASSIGN(const ChannelRanges ranges,
               channel_ranges(options, texts.smooth, files.config(), directory, parallel));
    Progress progress("quantising");
    const auto total = static_cast<double>(plan.source_bytes());
    AFD_ASSIGN(const QuantiseResult result,
               quantise_checkpoint(
                   files,
                   wanted,
                   companions,
                   directory,
                   parallel,
                   [&](uint64_t bytes) { progress.show(static_cast<double>(bytes) / total); },
                   {},
                   ranges));
    fmt::print("{}: {}, {} of weights (before: {})\n",
               options.out,
               model::describe(result.formats),
               size_text(result.bytes_after),
               size_text(result.bytes_before));
    if (before) {
        AFD_ASSIGN(const Perplexity after,
                   perplexity_after(options, *texts.validate, directory, parallel));
        print_perplexities(*before, after, options.validate, model::describe(result.formats));
    }
    return directory.finish();
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
    return "";
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
        "  afd-quantize MODEL --kv-dtype int8 --validate text.txt\n"
        "  afd-quantize MODEL --kv-scales text.txt\n"
        "\n"
        "A run that was interrupted goes on when it is started again as it was.\n"
        "int8: a scale per output channel. int4: a scale per group of inputs.\n"
        "What memory need not hold of a text goes into files without a name: in --out DIR, beside\n"
        "the file of --kv-scales, or with --kv-dtype and --int4-rows in TMPDIR (/tmp).\n"
        "docs/weights.md says what is quantised and what it costs.\n");
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
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return end_parse(app, error, "afd-quantize", kExitUsage);
    }
    options.shapes_int4 = app.count("--group") + app.count("--scale-dtype") > 0;
    if (const std::string misuse = misuse_of(options); !misuse.empty()) {
        fmt::print(stderr, "afd-quantize: {}\n", misuse);
        return kExitUsage;
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
