// SPDX-License-Identifier: Apache-2.0
#include "daemon/doctor/model_check.h"

#include <fmt/core.h>

#include <filesystem>
#include <utility>

#include "model/attention/attention_config.h"
#include "model/attention/kv_cache.h"
#include "model/attention/layer_windows.h"
#include "model/checkpoint/tensor_store.h"
#include "model/decoder/attention_half.h"
#include "model/family/model_files.h"
#include "model/tokenizer/tokenizer.h"

namespace afd::daemon {
namespace {

std::string kib_text(uint64_t bytes) {
    constexpr uint64_t kExactBelow = 10 * 1024;
    return bytes < kExactBelow ? fmt::format("{} bytes", bytes)
                               : fmt::format("{:.1f} KiB", static_cast<double>(bytes) / 1024);
}

std::string summary(const model::ModelConfig& config) {
    model::QuantisationConfig weights = config.quantisation;
    weights.kv = ops::KvDtype::kBf16;
    const uint64_t kv_bytes = model::kv_shape(config).bytes_per_token();
    const std::string kv = config.quantisation.kv == ops::KvDtype::kBf16
                               ? kib_text(kv_bytes) + " of KV cache a token"
                               : fmt::format("{} bytes of KV cache a token, {}",
                                             kv_bytes,
                                             ops::name_of(config.quantisation.kv));
    return fmt::format(
        "# model: {}, {} layers ({} without experts), hidden {}, {} experts, {} a token{}; "
        "weights: {}; {}\n",
        config.model_type,
        config.num_layers,
        config.dense_layers.size(),
        config.hidden,
        config.num_experts,
        config.top_k,
        config.num_shared_slots() > 0 ? " and shared ones" : "",
        model::describe(weights),
        kv);
}

// What of the cache a sequence holds at a time, where that is not all of its tokens.
std::string window_line(const model::ModelConfig& config) {
    const uint32_t window = config.attention->window();
    if (const auto windows = model::LayerWindows::of(config); windows.window > 0) {
        return fmt::format(
            "# model: {} of its layers see no more than {} positions; of these a sequence holds at "
            "most {} tokens of KV cache at a time, {}\n",
            windows.num_windowed(),
            windows.window,
            model::held_blocks(config.context_length, windows.window) * model::kKvBlockTokens,
            kib_text(model::held_blocks(config.context_length, windows.window) *
                     model::kKvBlockTokens * windows.num_windowed() *
                     model::kv_shape(config).layer_bytes_per_token));
    }
    if (window == 0) return "";
    return fmt::format(
        "# model: no layer sees more than {} positions; a sequence holds at most {} tokens of KV "
        "cache at a time\n",
        window,
        model::held_blocks(config.context_length, window) * model::kKvBlockTokens);
}

// Why experts take four times the memory that their files have, and what can be done.
std::string expansion_line(const model::ModelConfig& config) {
    if (!config.form.is_int4() || config.quantisation.experts != ops::WeightFormat::kBf16)
        return "";
    return "# model: the experts are bf16 in memory, also those stored in 4 bits: those stay int4 "
           "that are in groups of 32 or a multiple of 64, in order, all routed ones alike, with "
           "bf16 or fp16 scales; afd-quantize --experts int4 makes such a checkpoint\n";
}

// A line for a part of the checkpoint that is there or is not.
template <typename Part>
Result<std::string> line_of(const Result<Part>& part, const std::string& present) {
    if (part.ok()) return "# model: " + present + "\n";
    if (part.error().code == Code::kNotFound) return "# model: " + part.error().message + "\n";
    return part.error();
}

}  // namespace

bool has_weights(const std::string& directory) {
    std::error_code error;
    return std::filesystem::exists(directory + "/model.safetensors", error) ||
           std::filesystem::exists(directory + "/model.safetensors.index.json", error);
}

Result<CheckedModel> check_model(const std::string& directory,
                                 ops::KvDtype kv,
                                 ops::Int4Rows int4_rows) {
    AFD_ASSIGN(model::ModelConfig config, model::load_model_config(directory, kv));
    const auto generation = model::load_generation_config(directory, config);
    if (!generation.ok()) return generation.error();
    const auto tensors = model::open_tensors(directory, config);
    if (!tensors.ok() && has_weights(directory)) return tensors.error();
    // What it cannot have is said of the configuration, not of the model (needs_of).
    static_cast<void>(model::set_int4_rows(int4_rows, config.quantisation).ok());
    AFD_ASSIGN(const std::string weights,
               line_of(tensors,
                       tensors.ok() ? fmt::format("{} tensors", tensors.value().list().size())
                                    : std::string()));
    AFD_ASSIGN(const std::string tokenizer,
               line_of(model::Tokenizer::load(directory), "a tokenizer"));
    std::string text =
        summary(config) + expansion_line(config) + window_line(config) + weights + tokenizer;
    return CheckedModel{std::move(config), std::move(text)};
}

}  // namespace afd::daemon
