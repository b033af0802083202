// SPDX-License-Identifier: Apache-2.0
#include "tools/afd-quantize/serving_memory.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "model/attention/attention_config.h"
#include "model/attention/layer_windows.h"
#include "model/checkpoint/expert_tensors.h"
#include "model/checkpoint/router_tensors.h"
#include "model/checkpoint/tensor_names.h"
#include "model/decoder/attention_half.h"
#include "model/foreign/foreign_matrices.h"
#include "ops/format/packed_shape.h"

namespace afd {
namespace {

constexpr uint64_t kBf16Bytes = 2;

// What the names of the experts' tensors begin with.
std::vector<std::string> expert_prefixes(const model::ModelConfig& config) {
    std::vector<std::string> prefixes;
    for (uint32_t layer = 0; layer < config.num_layers; ++layer) {
        const auto add = [&](const std::string& name) {
            prefixes.push_back(model::layer_tensor(layer, name) + ".");
        };
        if (config.is_moe_layer(layer)) {
            add(config.names.experts);
            add(config.names.shared_experts);
        } else {
            add(config.names.dense);
        }
    }
    return prefixes;
}

bool is_gate(const std::string& name, const model::ModelConfig& config) {
    return name.starts_with("model.layers.") &&
           name.ends_with("." + config.names.router + ".weight");
}

// Every tensor that is no expert's, as bf16; a router's weight in as many parts as it may need.
uint64_t other_bytes(const model::ModelFiles& files) {
    const std::vector<std::string> experts = expert_prefixes(files.config());
    const model::TensorStore& tensors = files.tensors();
    const model::ForeignMatrices foreign = tensors.foreign();
    uint64_t total = 0;
    const auto add =
        [&](const std::string& name, std::span<const uint64_t> shape, uint64_t num_parts = 1) {
            const bool is_expert = std::ranges::any_of(
                experts, [&](const std::string& prefix) { return name.starts_with(prefix); });
            if (is_expert || model::is_beyond_layers(name, files.config().num_layers)) return;
            total += num_parts * kBf16Bytes *
                     std::accumulate(shape.begin(), shape.end(), uint64_t{1}, std::multiplies<>());
        };
    std::set<std::string> parts;
    for (const model::TensorInfo* tensor : tensors.list()) {
        const auto weight = foreign.weight_of(tensor->name);
        if (!weight) continue;
        const auto names = foreign.tensors_of(*weight);
        parts.insert(names.begin(), names.end());
        const auto shape = foreign.shape_of(*weight);
        if (shape.ok()) add(*weight, shape.value());
    }
    for (const model::TensorInfo* tensor : tensors.list()) {
        if (parts.contains(tensor->name) || tensor->name.ends_with("_scale_inv")) continue;
        const bool is_of_router = is_gate(tensor->name, files.config());
        add(tensor->name, tensor->shape, is_of_router ? model::gate_parts_max(tensor->dtype) : 1);
    }
    return total;
}

}  // namespace

uint64_t packed_expert_bytes(const model::ModelConfig& config,
                             uint32_t layer,
                             uint32_t expert,
                             ops::NumericClass numeric_class) {
    const size_t width = model::expert_intermediate(config, layer, expert);
    ops::PackedShape shape{.num_outputs = 2 * width,
                           .depth = config.hidden,
                           .format = model::expert_format(config, layer, expert),
                           .numeric_class = numeric_class,
                           .is_gate_up = true};
    const uint64_t inward = shape.size_bytes();
    shape.num_outputs = config.hidden;
    shape.depth = width;
    shape.is_gate_up = false;
    return inward + shape.size_bytes();
}

ServingMemory serving_memory(const model::ModelFiles& files,
                             const model::QuantisationConfig& formats) {
    model::ModelConfig config = files.config();
    config.quantisation = formats;
    const model::KvShape kv = model::kv_shape(config);
    ServingMemory memory{.attention = other_bytes(files),
                         .kv_bytes_per_token = kv.bytes_per_token()};
    if (const auto windows = model::LayerWindows::of(config); windows.window > 0) {
        memory.kv_windowed_bytes_per_token = windows.num_windowed() * kv.layer_bytes_per_token;
        memory.kv_windowed_tokens =
            model::held_blocks(config.context_length, windows.window) * model::kKvBlockTokens;
    }
    for (uint32_t layer = 0; layer < config.num_layers; ++layer) {
        for (uint32_t e = 0; e < model::num_layer_experts(config, layer); ++e) {
            memory.experts += packed_expert_bytes(config, layer, e, ops::best_numeric_class());
        }
        if (formats.attention != ops::WeightFormat::kInt8) continue;
        for (const auto& matrix : config.attention->matrices(config, layer)) {
            memory.attention -= matrix.num_outputs * matrix.depth;
            memory.attention += matrix.num_outputs * sizeof(float);
        }
    }
    // The head is packed even where it is the embedding.
    if (config.tie_word_embeddings) {
        memory.attention += kBf16Bytes * config.vocab_size * config.hidden;
    }
    return memory;
}

}  // namespace afd
