// SPDX-License-Identifier: Apache-2.0
#include "model/family/model_files.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "model/attention/attention_config.h"
#include "model/checkpoint/tensor_names.h"
#include "model/checkpoint/unread_tensor.h"
#include "model/family/config_file.h"
#include "model/family/expert_formats.h"
#include "model/family/mixture_keys.h"
#include "model/foreign/foreign_form.h"
#include "model/json/json_document.h"
#include "proto/failure.h"

namespace afd::model {
namespace {

constexpr size_t kConfigBytesMax = 4u << 20;

// FNV-1a, 64 bits (Fowler, Noll, Vo).
class Fingerprint {
  public:
    void add(std::span<const std::byte> bytes) {
        for (const std::byte byte : bytes) {
            state_ = (state_ ^ std::to_integer<uint64_t>(byte)) * 0x100000001b3u;
        }
    }
    void add(std::string_view text) {
        add_number(text.size());
        add(std::as_bytes(std::span(text)));
    }
    void add_number(uint64_t number) {
        for (int shift = 0; shift < 64; shift += 8) {
            state_ = (state_ ^ (number >> shift & 0xff)) * 0x100000001b3u;
        }
    }
    std::string hex() const {
        std::array<char, 17> text{};
        std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(state_));
        return text.data();
    }

  private:
    uint64_t state_ = 0xcbf29ce484222325u;
};

// The first, middle and last bytes of a tensor: enough to tell a fine-tuned model from its base,
// and cheap for tens of thousands of tensors.
constexpr uint64_t kSampleBytes = 64;

// Where they begin.
std::array<uint64_t, 3> sample_offsets(const TensorInfo& tensor) {
    const uint64_t bytes = tensor.end - tensor.begin;
    const uint64_t count = std::min(kSampleBytes, bytes);
    return {0, (bytes - count) / 2, bytes - count};
}

Result<> add_samples(const TensorStore& tensors, const TensorInfo& tensor, Fingerprint& print) {
    std::array<std::byte, kSampleBytes> sample;
    const auto part = std::span(sample).first(std::min(kSampleBytes, tensor.end - tensor.begin));
    for (const uint64_t offset : sample_offsets(tensor)) {
        AFD_TRY(tensors.read_bytes(tensor, offset, part));
        print.add(part);
    }
    return {};
}

// Tens of thousands of samples, one after the other, are as many times the disk's delay.
void will_read_samples(const TensorStore& tensors) {
    for (const TensorInfo* tensor : tensors.list()) {
        const uint64_t count = std::min(kSampleBytes, tensor->end - tensor->begin);
        for (const uint64_t offset : sample_offsets(*tensor)) {
            tensors.will_read(*tensor, offset, count);
        }
    }
}

Result<std::string> compute_identity(std::string_view text, const TensorStore& tensors) {
    Fingerprint print;
    print.add(text);
    will_read_samples(tensors);
    for (const TensorInfo* tensor : tensors.list()) {
        print.add(tensor->name);
        print.add(storage_type_name(tensor->dtype));
        print.add(shape_text(tensor->shape));
        AFD_TRY(add_samples(tensors, *tensor, print));
    }
    return print.hex();
}

Result<> add_kv_scales(const std::string& directory, TensorStore& tensors) {
    auto added = tensors.add_file(directory + "/" + kKvScalesFile);
    if (added.ok() || added.error().code != Code::kNotFound) return added;
    return not_found(
        "kv_dtype = 'int8_channel': {}/{} with the factors of the channels is missing; measure "
        "them on a text: afd-quantize {} --kv-scales TEXT",
        with(directory, kKvScalesFile, directory));
}

// Of an MLP by either name that families have for it, stored as it is or by another program that
// has quantised it.
Result<> refuse_unread_shared(const TensorStore& tensors, const ModelConfig& config) {
    if (config.num_shared_slots() > 0) return {};
    for (uint32_t layer = 0; layer < config.num_layers; ++layer) {
        for (const char* name : {"mlp.shared_experts.", "mlp.shared_expert."}) {
            const std::string stem = layer_tensor(layer, name + config.names.down);
            for (const char* end : {".weight", ".qweight", ".weight_packed"}) {
                AFD_TRY(refuse_unread(tensors, stem + end, "n_shared_experts"));
            }
        }
    }
    return {};
}

Result<std::string> read_config_text(const std::string& directory) {
    auto text = read_text_file(directory + "/config.json", kConfigBytesMax);
    if (text.ok() || text.error().code != Code::kNotFound) return text;
    return not_found(
        "{}/config.json: no such file; give the directory of a checkpoint in the layout of Hugging "
        "Face (config.json, *.safetensors, tokenizer.json)",
        with(directory));
}

// Two programs (docs/weights.md) say beside config.json how they have quantised a model. It may
// then say nothing, or what was true of the model before.
Result<> refuse_other_descriptions(const std::string& directory) {
    for (const char* name : {"hf_quant_config.json", "quant_model_description.json"}) {
        std::error_code ignored;
        if (!std::filesystem::exists(directory + "/" + name, ignored)) continue;
        return unimplemented(
            "{}/{}: says how another program has quantised this model, which is not read; "
            "supported: what quantization_config of config.json says, without this file{}",
            with(directory, name, kForeignRemedy));
    }
    return {};
}

Result<ModelConfig> read_model_config(const std::string& text,
                                      const std::string& directory,
                                      ops::KvDtype kv) {
    AFD_ASSIGN(ModelConfig config, parse_model_config(text, directory + "/config.json"));
    AFD_TRY(refuse_other_descriptions(directory));
    if (std::ranges::find(config.attention->kv_dtypes(), kv) ==
        config.attention->kv_dtypes().end()) {
        std::string known;
        for (const ops::KvDtype dtype : config.attention->kv_dtypes()) {
            known += (known.empty() ? "" : ", ") + std::string(ops::name_of(dtype));
        }
        return unimplemented(
            "kv_dtype = '{}': the attention of models of type {} keeps keys and values as {}",
            with(ops::name_of(kv), config.model_type, known));
    }
    config.quantisation.kv = kv;
    return config;
}

}  // namespace

Result<ModelConfig> load_model_config(const std::string& directory, ops::KvDtype kv) {
    AFD_ASSIGN(const std::string text, read_config_text(directory));
    return read_model_config(text, directory, kv);
}

Result<GenerationConfig> load_generation_config(const std::string& directory,
                                                const ModelConfig& config) {
    const std::string path = directory + "/generation_config.json";
    auto text = read_text_file(path, kConfigBytesMax);
    if (!text.ok() && text.error().code != Code::kNotFound) return text.error();
    return parse_generation_config(text.ok() ? text.value() : std::string(), config, path);
}

Result<TensorStore> open_tensors(const std::string& directory, ModelConfig& config) {
    AFD_ASSIGN(TensorStore tensors, TensorStore::open(directory));
    tensors.set_form(config.form);
    settle_mixture_names(tensors, config);
    settle_expert_formats(tensors, config);
    AFD_TRY(refuse_unread_shared(tensors, config));
    return tensors;
}

Result<> set_int4_rows(ops::Int4Rows rows, QuantisationConfig& quantisation) {
    if (rows != ops::Int4Rows::kBf16 && !ops::is_int4(quantisation.experts)) {
        return invalid_argument(
            "int4_rows = '{}': the model's experts are {}, and only int4 ones take such rows; "
            "leave int4_rows at 'bf16', or quantise the model with afd-quantize --experts int4",
            with(ops::name_of(rows), ops::name_of(quantisation.experts)));
    }
    quantisation.int4_rows = rows;
    return {};
}

Result<> ModelFiles::set_int4_rows(ops::Int4Rows rows) {
    return model::set_int4_rows(rows, config_.quantisation);
}

std::string ModelFiles::unused_text() const {
    size_t count = 0;
    uint64_t bytes = 0;
    for (const TensorInfo* tensor : tensors_.list()) {
        if (!is_beyond_layers(tensor->name, config_.num_layers)) continue;
        ++count;
        bytes += tensor->end - tensor->begin;
    }
    std::string text;
    const auto say = [&text](size_t tensors, uint64_t size, const std::string& why) {
        if (tensors == 0) return;
        text += fmt::format("{}{} tensors ({:.1f} MiB) {}",
                            text.empty() ? "" : "; ",
                            tensors,
                            static_cast<double>(size) / (1 << 20),
                            why);
    };
    say(count,
        bytes,
        fmt::format("of layers from {} on are ignored: num_hidden_layers is {}, and multi-token "
                    "prediction is not served",
                    config_.num_layers,
                    config_.num_layers));
    const TensorFiles::Nameless& others = tensors_.nameless();
    say(others.count,
        others.bytes,
        "of other parts than the text model are ignored: only text is served");
    return text.empty() ? text : directory_ + ": " + text;
}

Result<ModelFiles> ModelFiles::open(const std::string& directory, ops::KvDtype kv) {
    ModelFiles files;
    files.directory_ = directory;
    AFD_ASSIGN(files.config_text_, read_config_text(directory));
    AFD_ASSIGN(files.config_, read_model_config(files.config_text_, directory, kv));
    AFD_ASSIGN(files.generation_, load_generation_config(directory, files.config_));
    AFD_ASSIGN(files.tensors_, open_tensors(directory, files.config_));
    // The text as it stands, so that a change of any key is another model.
    AFD_ASSIGN(files.weights_identity_, compute_identity(files.config_text_, files.tensors_));
    files.identity_ = files.weights_identity_;
    if (kv != ops::KvDtype::kInt8Channel) return files;
    TensorStore scales;
    AFD_TRY(add_kv_scales(directory, scales));
    AFD_ASSIGN(files.identity_, compute_identity(files.weights_identity_, scales));
    AFD_TRY(add_kv_scales(directory, files.tensors_));
    return files;
}

}  // namespace afd::model
