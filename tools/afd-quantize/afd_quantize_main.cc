// SPDX-License-Identifier: Apache-2.0
//
// afd-quantize: from a checkpoint one with int8 or int4 weights, and what it costs in perplexity on
// a text.

#include <fmt/core.h>
#include <signal.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "model/decoder/attention_half.h"
#include "model/decoder/serving_memory.h"
#include "model/family/model_files.h"
#include "model/mla/mla_config.h"
#include "model/safetensors/whole_file.h"
#include "model/tokenizer/tokenizer.h"
#include "ops/format/int4_rows.h"
#include "ops/format/kv_dtype.h"
#include "proto/standard_descriptors.h"
#include "proto/standard_output.h"
#include "threads/thread_pool.h"
#include "tools/afd-quantize/companion_files.h"
#include "tools/afd-quantize/kv_scales.h"
#include "tools/afd-quantize/options.h"
#include "tools/afd-quantize/perplexity.h"
#include "tools/afd-quantize/progress.h"
#include "tools/afd-quantize/quantise_checkpoint.h"
#include "tools/afd-quantize/quantise_plan.h"
#include "tools/afd-quantize/result_directory.h"
#include "tools/afd-quantize/result_files.h"
#include "tools/afd-quantize/size_text.h"
#include "tools/afd-quantize/text_sample.h"

namespace afd::tools {
namespace {

constexpr int kExitFailed = 1;

template <typename... Args>
void print(fmt::format_string<Args...> text, Args&&... args) {
    std::fputs(fmt::format(text, std::forward<Args>(args)...).c_str(), stdout);
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
    print(
        "perplexity on {} ({} tokens in windows of {})\n", file, before.num_scored, before.window);
    print("  {:<32} {:9.4f}            {:.4f} bits per byte\n",
          "before",
          before.value,
          before.bits_per_byte);
    print("  {:<32} {:9.4f}  {:+7.2f} %  {:.4f} bits per byte\n",
          formats,
          after.value,
          (after.value / before.value - 1) * 100,
          after.bits_per_byte);
}

Result<> dry_run(const model::ModelFiles& files, const model::QuantisationConfig& wanted) {
    AFD_ASSIGN(const QuantisePlan plan, QuantisePlan::make(files, wanted));
    const model::ServingMemory memory = model::serving_memory(files, plan.formats());
    print("{}: {}, {} of weights\n",
          files.directory(),
          model::describe(files.config().quantisation),
          size_text(files.tensors().total_bytes()));
    print("result: {}, {} in {} file{}\n",
          model::describe(plan.formats()),
          size_text(plan.result_bytes()),
          plan.num_shards(),
          plan.num_shards() == 1 ? "" : "s");
    print("memory to serve it:\n");
    print("  {:>10}  FFN workers, all together: experts, shared through the weight cache\n",
          size_text(memory.experts));
    print("  {:>10}  each attention worker: embedding, attention, routers, head\n",
          size_text(memory.attention));
    print("  {:>6.1f} KiB  KV cache, a token of context\n",
          static_cast<double>(memory.kv_bytes_per_token) / 1024);
    if (memory.kv_windowed_bytes_per_token > 0) {
        print("  {:>6.1f} KiB  of that in layers with a window, at most {} tokens a sequence\n",
              static_cast<double>(memory.kv_windowed_bytes_per_token) / 1024,
              memory.kv_windowed_tokens);
    }
    return {};
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
    threads::ThreadPool parallel(options.num_threads());
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
    print("KV cache, a token of context: {} bytes (before: {})\n",
          model::kv_shape(files.config()).bytes_per_token(),
          model::kv_shape(before).bytes_per_token());
    return {};
}

// --kv-scales: beside the weights, where kv_dtype = int8_channel looks for it.
Result<> measure_kv_scales(const Options& options) {
    // Before the place of the result, which is beside it: without a model there is none.
    AFD_ASSIGN(const model::ModelConfig config, model::load_model_config(options.model_dir));
    if (const auto shape = model::mla_shape_of(config); !shape.ok()) {
        return Error{shape.error().code,
                     "--kv-scales: " + shape.error().message +
                         ", which kv_dtype = int8_channel needs; int8 and fp8 need no factors"};
    }
    const std::string path =
        options.out.empty() ? options.model_dir + "/" + model::kKvScalesFile : options.out;
    // Before hours of work.
    auto file = model::WholeFile::create(path);
    if (!file.ok()) {
        return Error{file.error().code, file.error().message + "; --out FILE names another place"};
    }
    AFD_ASSIGN(model::Tokenizer tokenizer, model::Tokenizer::load(options.model_dir));
    AFD_ASSIGN(const TextSample text, TextSample::read(options.kv_scales, tokenizer, config));
    // Beside the result, too, which shows now whether that can be written.
    const std::string folder = std::filesystem::path(path).parent_path().string();
    threads::ThreadPool parallel(options.num_threads());
    Progress progress("measuring keys and values on " + options.kv_scales);
    AFD_TRY(write_kv_scales(options.model_dir,
                            text,
                            std::move(file).value(),
                            folder.empty() ? "." : folder,
                            parallel,
                            [&](double share) { progress.show(share); }));
    print("{}: a factor for each channel of the KV cache, for kv_dtype = int8_channel\n", path);
    return {};
}

Result<> run(const Options& options) {
    if (!options.kv_scales.empty()) return measure_kv_scales(options);
    if (options.compares_serving()) return compare_serving(options);
    const model::QuantisationConfig wanted = options.formats();
    AFD_ASSIGN(const model::ModelFiles files, model::ModelFiles::open(options.model_dir));
    if (const std::string unused = files.unused_text(); !unused.empty()) {
        std::fprintf(stderr, "%s; they are not copied\n", unused.c_str());
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
        std::fprintf(stderr, "%s: goes on with what an earlier run left\n", options.out.c_str());
    }
    // A full disk shows now and not after hours of measuring.
    if (directory.units_done() == 0 && (texts.smooth || texts.validate)) {
        AFD_TRY(ResultFiles::open(plan, options.out, false));
    }
    threads::ThreadPool parallel(options.num_threads());
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
    print("{}: {}, {} of weights (before: {})\n",
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

int main_with(int argc, char** argv) {
    int exit_code = 0;
    const std::optional<Options> options = read_options(argc, argv, exit_code);
    if (!options) return exit_code;
    const Result<> result = run(*options);
    if (result.ok()) return 0;
    std::fprintf(stderr, "afd-quantize: %s\n", result.error().message.c_str());
    return kExitFailed;
}

}  // namespace
}  // namespace afd::tools

int main(int argc, char** argv) {
    afd::open_standard_descriptors();
    // Writing beyond the limit of a file's size is then an error, EFBIG, with a message.
    ::signal(SIGXFSZ, SIG_IGN);
    return afd::end_standard_output("afd-quantize", afd::tools::main_with(argc, argv));
}
