// SPDX-License-Identifier: Apache-2.0
//
// afd-logits: the logits that a checkpoint gives for one sequence, as a safetensors file; what the
// golden tests compare with an independent implementation, and what a person compares two machines,
// numeric classes or revisions with.

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "model/decoder/local_decoder.h"
#include "model/family/model_files.h"
#include "model/reference/reference_decoder.h"
#include "model/safetensors/safetensors_writer.h"
#include "model/safetensors/whole_file.h"
#include "ops/format/int4_rows.h"
#include "ops/format/kv_dtype.h"
#include "ops/format/numeric_class.h"
#include "ops/tensor/parallel.h"
#include "proto/command_words.h"
#include "proto/failure.h"
#include "proto/standard_descriptors.h"
#include "proto/standard_output.h"
#include "proto/usage_error.h"
#include "tools/number_option.h"

namespace afd::tools {
namespace {

constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;

struct Options {
    std::string model_dir;
    std::string ids_path;
    std::string out_path;
    bool is_reference = false;
    std::string rounding = "bf16";
    std::string numeric_class = "auto";
    uint32_t chunk = 64;
    bool has_routing = false;
    std::string kv_dtype = "bf16";
    std::string int4_rows = "bf16";
    std::string residual{model::name_of(model::kServingResidual)};
};

// What goes into the file.
struct Computed {
    std::vector<float> logits;     // [T, V]
    std::vector<int32_t> routing;  // [T, L, K], with --routing
};

Result<std::vector<int32_t>> read_ids(const std::string& path) {
    std::ifstream stream(path);
    if (!stream) {
        return Error{Code::kNotFound,
                     "--ids " + path + ": cannot be read: " + std::strerror(errno)};
    }
    std::vector<int32_t> ids;
    std::string word;
    while (stream >> word) {
        int32_t id = 0;
        const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
        if (error != std::errc() || end != word.data() + word.size()) {
            return Error{Code::kInvalidArgument,
                         path + ": \"" + word +
                             "\" is no token id; ids separated by blanks or "
                             "line ends are needed"};
        }
        ids.push_back(id);
    }
    if (ids.empty()) return Error{Code::kInvalidArgument, path + ": holds no token ids"};
    return ids;
}

std::string names_of(std::span<const ops::NumericClass> classes) {
    std::string names = "auto";
    for (const ops::NumericClass one : classes) names += ", " + std::string(ops::name_of(one));
    return names;
}

Result<ops::NumericClass> choose_class(const std::string& name) {
    if (name == "auto") return ops::best_numeric_class();
    const auto numeric_class = ops::parse_numeric_class(name);
    if (numeric_class && ops::supported(*numeric_class)) return *numeric_class;
    return Error{Code::kInvalidArgument,
                 "--numeric-class " + name + ": this machine supports " +
                     names_of(ops::supported_numeric_classes())};
}

Result<Computed> local_logits(const model::ModelFiles& files,
                              const Options& options,
                              std::span<const int32_t> ids) {
    AFD_ASSIGN(const ops::NumericClass numeric_class, choose_class(options.numeric_class));
    const size_t vocab_size = files.config().vocab_size;
    ops::SerialParallel serial;
    AFD_ASSIGN(model::LocalDecoder decoder,
               model::LocalDecoder::load(
                   files, numeric_class, options.chunk, static_cast<uint32_t>(ids.size()), serial));
    Computed computed{std::vector<float>(ids.size() * vocab_size), {}};
    const size_t routing_size = size_t{files.config().num_layers} * files.config().top_k;
    if (options.has_routing) computed.routing.resize(ids.size() * routing_size);
    for (size_t done = 0; done < ids.size();) {
        const size_t count = std::min<size_t>(options.chunk, ids.size() - done);
        AFD_TRY(decoder.append(
            ids.subspan(done, count),
            ops::make_rows(computed.logits.data() + done * vocab_size, count, vocab_size),
            options.has_routing ? computed.routing.data() + done * routing_size : nullptr));
        done += count;
    }
    return computed;
}

Result<Computed> compute(const model::ModelFiles& files,
                         const Options& options,
                         std::span<const int32_t> ids) {
    if (!options.is_reference) return local_logits(files, options, ids);
    AFD_ASSIGN(const auto decoder, model::ReferenceDecoder::load(files));
    Computed computed;
    AFD_ASSIGN(computed.logits,
               decoder.logits(ids,
                              options.rounding == "none" ? ops::reference::Rounding::kNone
                                                         : ops::reference::Rounding::kBf16));
    return computed;
}

// All logits are in memory until they are written. Before the weights are read.
Result<> check_room(size_t num_tokens, size_t vocab_size) {
    const auto wanted = static_cast<double>(num_tokens) * static_cast<double>(vocab_size) *
                        static_cast<double>(sizeof(float));
    const auto room = static_cast<double>(::sysconf(_SC_PHYS_PAGES)) *
                      static_cast<double>(::sysconf(_SC_PAGESIZE));
    if (wanted < room) return {};
    constexpr double kGibibyte = 1 << 30;
    return resource_exhausted(
        "the logits of {} tokens, {} each, take {:.1f} GiB of memory; this machine has {:.1f} GiB. "
        "Give fewer ids",
        with(num_tokens, vocab_size, wanted / kGibibyte, room / kGibibyte));
}

Result<> run(const Options& options) {
    AFD_ASSIGN(const auto ids, read_ids(options.ids_path));
    AFD_ASSIGN(model::WholeFile out, model::WholeFile::create(options.out_path));
    AFD_ASSIGN(auto files,
               model::ModelFiles::open(
                   options.model_dir,
                   ops::parse_kv_dtype(options.kv_dtype).value_or(ops::KvDtype::kBf16)));
    files.set_residual(options.residual == "fp32" ? model::ResidualType::kFp32
                                                  : model::ResidualType::kBf16);
    AFD_TRY(files.set_int4_rows(
        ops::parse_int4_rows(options.int4_rows).value_or(ops::Int4Rows::kBf16)));
    AFD_TRY(check_room(ids.size(), files.config().vocab_size));
    AFD_ASSIGN(const Computed computed, compute(files, options, ids));
    const model::ModelConfig& config = files.config();
    std::vector<model::TensorToWrite> tensors{{.name = "logits",
                                               .dtype = model::StorageType::kF32,
                                               .shape = {ids.size(), config.vocab_size},
                                               .data = std::as_bytes(std::span(computed.logits))}};
    if (options.has_routing) {
        tensors.push_back({.name = "routing",
                           .dtype = model::StorageType::kI32,
                           .shape = {ids.size(), config.num_layers, config.top_k},
                           .data = std::as_bytes(std::span(computed.routing))});
    }
    return model::write_safetensors(std::move(out), tensors);
}

int main_with(int argc, char** argv) {
    Options options;
    CLI::App app(
        "Writes the logits of one sequence as tensor \"logits\", F32 [T, V].\n"
        "With --routing also the experts that each layer's router chose, \"routing\", I32 [T, L, "
        "K];\n"
        "a dense layer has 0 and then -1.\n"
        "\n"
        "Examples:\n"
        "  afd-logits MODEL_DIR --ids ids.txt --out logits.safetensors\n"
        "  afd-logits MODEL_DIR --ids ids.txt --out l.safetensors --reference --rounding none\n"
        "  afd-logits MODEL_DIR --ids ids.txt --out l.safetensors --numeric-class portable "
        "--chunk 1\n"
        "  afd-logits MODEL_DIR --ids ids.txt --out l.safetensors --kv-dtype int8\n",
        "afd-logits");
    app.set_version_flag("--version", "afd-logits " AFD_VERSION);
    app.add_option("model_dir", options.model_dir, "Checkpoint in Hugging Face's layout")
        ->required();
    app.add_option("--ids", options.ids_path, "File of token ids, separated by blanks")->required();
    app.add_option("--out", options.out_path, "File to write")->required();
    auto* reference =
        app.add_flag("--reference", options.is_reference, "Plain loops instead of fast kernels");
    app.add_option("--rounding", options.rounding, "Reference: bf16 as served, or none")
        ->check(CLI::IsMember({"none", "bf16"}))
        ->needs(reference)
        ->capture_default_str();
    app.add_option("--residual", options.residual, "Residual stream: fp32 (as served) or bf16")
        ->check(CLI::IsMember({"bf16", "fp32"}))
        ->capture_default_str();
    app.add_option("--numeric-class",
                   options.numeric_class,
                   "Fast path: " + names_of(ops::numeric_classes()))
        ->excludes(reference)
        ->capture_default_str();
    app.add_option(
           "--kv-dtype",
           options.kv_dtype,
           "How keys and values are kept, as afdd's kv_dtype: bf16, int8, fp8 or int8_channel")
        ->check(CLI::IsMember({"bf16", "int8", "fp8", "int8_channel"}))
        ->capture_default_str();
    app.add_option("--int4-rows",
                   options.int4_rows,
                   "Rows that int4 experts multiply, as afdd's int4_rows: bf16 or int8")
        ->check(CLI::IsMember({"bf16", "int8"}))
        ->capture_default_str();
    app.add_option("--chunk", options.chunk, "Fast path: tokens computed at once")
        ->transform(whole_from(1, 65536))
        ->excludes(reference)
        ->capture_default_str();
    app.add_flag("--routing", options.has_routing, "Fast path: what the routers chose, too")
        ->excludes(reference);
    try {
        parse_words(app, argc, argv);
    } catch (const CLI::ParseError& error) {
        return end_parse(app, error, "afd-logits", kExitUsage);
    }
    const Result<> result = run(options);
    if (result.ok()) return 0;
    std::fprintf(stderr, "afd-logits: %s\n", result.error().message.c_str());
    return kExitFailed;
}

}  // namespace
}  // namespace afd::tools

int main(int argc, char** argv) {
    afd::open_standard_descriptors();
    return afd::end_standard_output("afd-logits", afd::tools::main_with(argc, argv));
}
