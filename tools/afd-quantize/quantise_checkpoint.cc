// SPDX-License-Identifier: Apache-2.0
#include "tools/afd-quantize/quantise_checkpoint.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "model/attention/attention_config.h"
#include "model/checkpoint/expert_tensors.h"
#include "model/checkpoint/matrix_quantiser.h"
#include "model/checkpoint/tensor_names.h"
#include "tools/afd-quantize/shard_writer.h"
#include "tools/afd-quantize/smooth_columns.h"

namespace afd {
namespace {

namespace fs = std::filesystem;
using model::StorageType;
using model::StoredMatrix;
using ops::WeightFormat;

// What a checkpoint may hold besides weights and config.json.
constexpr const char* kCompanions[] = {"generation_config.json",
                                       "tokenizer.json",
                                       "tokenizer_config.json",
                                       "special_tokens_map.json",
                                       "added_tokens.json",
                                       "vocab.json",
                                       "merges.txt",
                                       "tokenizer.model",
                                       "tiktoken.model",
                                       "chat_template.jinja",
                                       "chat_template.json",
                                       "LICENSE"};

template <typename T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
    const auto bytes = std::as_bytes(std::span(values));
    return {bytes.begin(), bytes.end()};
}

class Quantiser {
  public:
    Quantiser(const model::ModelFiles& files,
              const model::QuantisationConfig& wanted,
              const ChannelRanges& ranges,
              ShardWriter& writer,
              ops::Parallel& parallel)
        : files_(files),
          config_(as_bf16(files.config())),
          wanted_(wanted),
          ranges_(ranges),
          writer_(writer),
          parallel_(parallel) {}

    Result<> layer(uint32_t index) {
        if (wanted_.experts != WeightFormat::kBf16) AFD_TRY(experts(index));
        if (wanted_.attention != WeightFormat::kBf16) AFD_TRY(attention(index));
        return {};
    }

    // Copies every tensor that was not quantised, but for those that nobody would read.
    Result<> rest() {
        for (const model::TensorInfo* tensor : files_.tensors().list()) {
            if (is_replaced(tensor->name)) continue;
            if (model::is_beyond_layers(tensor->name, config_.num_layers)) continue;
            std::vector<std::byte> bytes(tensor->end - tensor->begin);
            AFD_TRY(files_.tensors().read_bytes(*tensor, 0, bytes));
            AFD_TRY(writer_.add(tensor->name, tensor->dtype, tensor->shape, std::move(bytes)));
        }
        return {};
    }

  private:
    // Sources in fp8 are read as bf16.
    static model::ModelConfig as_bf16(model::ModelConfig config) {
        config.quantisation = {};
        return config;
    }

    // Some experts at a time, so that memory holds only these.
    Result<> experts(uint32_t layer) {
        const uint32_t num_experts = model::num_layer_experts(config_, layer);
        for (uint32_t first = 0; first < num_experts; first += parallel_.num_threads()) {
            const uint32_t count = std::min(parallel_.num_threads(), num_experts - first);
            std::vector<std::optional<Result<model::ExpertTensors>>> results(count);
            parallel_.run(count, [&](size_t task, unsigned) {
                results[task] = quantised_expert(layer, first + static_cast<uint32_t>(task));
            });
            for (uint32_t i = 0; i < count; ++i) {
                AFD_ASSIGN(const model::ExpertTensors expert, std::move(*results[i]));
                const std::string prefix = model::expert_prefix(config_, layer, first + i);
                AFD_TRY(add(prefix + config_.names.gate, expert.gate));
                AFD_TRY(add(prefix + config_.names.up, expert.up));
                AFD_TRY(add(prefix + config_.names.down, expert.down));
                AFD_TRY(add_smooth(prefix + "smooth_scale", expert.smooth));
            }
        }
        const std::string fused = model::layer_tensor(layer, config_.names.experts) + ".";
        replaced_.insert({fused + "gate_up_proj", fused + "down_proj"});
        return {};
    }

    Result<model::ExpertTensors> quantised_expert(uint32_t layer, uint32_t expert) const {
        AFD_ASSIGN(model::ExpertTensors mlp,
                   model::read_expert_tensors(files_.tensors(), config_, layer, expert));
        const std::string prefix = model::expert_prefix(config_, layer, expert);
        model::ExpertTensors out;
        if (wanted_.smooth) out.smooth = smooth_columns(ranges_[layer], mlp.gate, mlp.up);
        AFD_ASSIGN(out.gate, quantised(prefix + config_.names.gate, mlp.gate, wanted_.experts));
        AFD_ASSIGN(out.up, quantised(prefix + config_.names.up, mlp.up, wanted_.experts));
        AFD_ASSIGN(out.down, quantised(prefix + config_.names.down, mlp.down, wanted_.experts));
        return out;
    }

    Result<> attention(uint32_t layer) {
        for (const model::AttentionMatrix& matrix : config_.attention->matrices(config_, layer)) {
            AFD_ASSIGN(const StoredMatrix source,
                       model::read_matrix(files_.tensors(),
                                          matrix.prefix,
                                          matrix.num_outputs,
                                          matrix.depth,
                                          WeightFormat::kBf16));
            AFD_ASSIGN(const StoredMatrix out, quantised(matrix.prefix, source, wanted_.attention));
            AFD_TRY(add(matrix.prefix, out));
        }
        return {};
    }

    static Result<StoredMatrix> quantised(const std::string& prefix,
                                          const StoredMatrix& matrix,
                                          WeightFormat format) {
        auto result = model::quantise_matrix(matrix.bf16_rows(), format);
        if (result.ok()) return result;
        return Error{result.error().code,
                     "tensor " + prefix + ".weight: " + result.error().message};
    }

    Result<> add(const std::string& prefix, const StoredMatrix& matrix) {
        const std::string name = prefix + ".weight";
        const uint64_t rows = matrix.num_outputs;
        // A source in fp8 has scales of its own.
        replaced_.insert({name, name + "_scale_inv"});
        if (matrix.format == WeightFormat::kInt8) {
            AFD_TRY(
                writer_.add(name, StorageType::kI8, {rows, matrix.depth}, bytes_of(matrix.int8)));
            return writer_.add(
                name + "_scale", StorageType::kF32, {rows}, bytes_of(matrix.int8_scale));
        }
        const uint64_t groups = model::int4_scale_columns(matrix.depth, matrix.format);
        AFD_TRY(writer_.add(
            name, StorageType::kU8, {rows, (matrix.depth + 1) / 2}, bytes_of(matrix.int4)));
        return writer_.add(name + "_scale",
                           model::int4_scale_type(matrix.format),
                           {rows, groups},
                           bytes_of(matrix.int4_scale));
    }

    Result<> add_smooth(const std::string& name, const std::vector<float>& scales) {
        if (scales.empty()) return {};
        return writer_.add(name, StorageType::kF32, {scales.size()}, bytes_of(scales));
    }

    bool is_replaced(const std::string& name) const { return replaced_.contains(name); }

    const model::ModelFiles& files_;
    const model::ModelConfig config_;
    const model::QuantisationConfig wanted_;
    const ChannelRanges& ranges_;
    ShardWriter& writer_;
    ops::Parallel& parallel_;
    std::set<std::string> replaced_;
};

Result<> make_output_directory(const std::string& path) {
    std::error_code error;
    fs::create_directories(path, error);
    if (error) {
        return Error{Code::kPermissionDenied, path + ": cannot be created: " + error.message()};
    }
    const bool is_empty = fs::is_empty(path, error);
    if (!error && is_empty) return {};
    return Error{Code::kAlreadyExists,
                 path + ": is not an empty directory; give --out a new name, or remove it"};
}

Result<> copy_companions(const std::string& from, const std::string& to) {
    for (const char* name : kCompanions) {
        std::error_code error;
        if (!fs::exists(fs::path(from) / name, error)) continue;
        fs::copy_file(fs::path(from) / name, fs::path(to) / name, error);
        if (error) {
            return Error{Code::kUnavailable,
                         to + "/" + name + ": cannot be written: " + error.message()};
        }
    }
    return {};
}

Result<> write_config(const std::string& from,
                      const std::string& to,
                      const model::QuantisationConfig& wanted) {
    std::ifstream source(from + "/config.json");
    const std::string text{std::istreambuf_iterator<char>(source), {}};
    auto config = nlohmann::ordered_json::parse(text, nullptr, false);
    if (!config.is_object()) {
        return Error{Code::kDataLoss, from + "/config.json: changed while it was read"};
    }
    config["quantization_config"] = {{"quant_method", "afd"},
                                     {"experts", ops::name_of(wanted.experts)},
                                     {"attention", ops::name_of(wanted.attention)}};
    if (wanted.smooth) config["quantization_config"]["smooth"] = true;
    const std::string path = to + "/config.json";
    std::ofstream stream(path);
    stream << config.dump(2) << '\n';
    stream.flush();
    if (stream) return {};
    return Error{Code::kUnavailable, path + ": cannot be written; is the disk full?"};
}

// What can be read as bf16 without having lost what the original had.
bool is_source(const model::QuantisationConfig& quantisation) {
    return quantisation == model::QuantisationConfig{} ||
           quantisation == model::QuantisationConfig{.experts = WeightFormat::kFp8Block128};
}

}  // namespace

Result<QuantiseResult> quantise_checkpoint(const model::ModelFiles& files,
                                           const model::QuantisationConfig& wanted,
                                           const std::string& out_directory,
                                           ops::Parallel& parallel,
                                           const std::function<void(uint32_t)>& progress,
                                           uint64_t shard_bytes,
                                           const ChannelRanges& ranges) {
    const model::ModelConfig& config = files.config();
    model::QuantisationConfig written = wanted;
    if (wanted.experts == WeightFormat::kBf16) written.experts = config.quantisation.experts;
    if (!is_source(config.quantisation)) {
        return Error{Code::kInvalidArgument,
                     fmt::format("{} is quantised already ({}); give the original",
                                 files.directory(),
                                 model::describe(config.quantisation))};
    }
    const auto formats = config.attention->formats();
    if (std::ranges::find(formats, wanted.attention) == formats.end()) {
        return Error{Code::kUnimplemented,
                     fmt::format("{}: the attention of models of type {} cannot be {}",
                                 files.directory(),
                                 config.model_type,
                                 ops::name_of(wanted.attention))};
    }
    AFD_ASSERT(!wanted.smooth ||
                   (ranges.size() == config.num_layers && wanted.experts == WeightFormat::kInt8),
               "ranges of %zu layers of %u, for int8 experts",
               ranges.size(),
               config.num_layers);
    AFD_TRY(make_output_directory(out_directory));
    ShardWriter writer(out_directory, shard_bytes);
    Quantiser quantiser(files, wanted, ranges, writer, parallel);
    for (uint32_t layer = 0; layer < config.num_layers; ++layer) {
        AFD_TRY(quantiser.layer(layer));
        progress(layer + 1);
    }
    AFD_TRY(quantiser.rest());
    AFD_TRY(writer.finish());
    AFD_TRY(copy_companions(files.directory(), out_directory));
    AFD_TRY(write_config(files.directory(), out_directory, written));
    return QuantiseResult{.formats = written,
                          .bytes_before = files.tensors().total_bytes(),
                          .bytes_after = writer.total_bytes()};
}

}  // namespace afd
