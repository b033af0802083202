// SPDX-License-Identifier: Apache-2.0
#include "model/decoder/serving_memory.h"

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
#include "ops/format/packed_shape.h"

namespace afd::model {
namespace {

constexpr uint64_t kBf16Bytes = 2;

// What the names of the experts' tensors begin with.
std::vector<std::string> expert_prefixes(const ModelConfig& config) {
    std::vector<std::string> prefixes;
    for (uint32_t layer = 0; layer < config.num_layers; ++layer) {
        const auto add = [&](const std::string& name) {
            prefixes.push_back(layer_tensor(layer, name) + ".");
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

bool is_gate(const std::string& name, const ModelConfig& config) {
    return name.starts_with("model.layers.") &&
           name.ends_with("." + config.names.router + ".weight");
}

struct OtherBytes {
    uint64_t all = 0;
    uint64_t routers = 0;  // Of that.
};

// Every tensor that is no expert's, as bf16; a router's weight in as many parts as it may need.
OtherBytes other_bytes(const ModelFiles& files) {
    const std::vector<std::string> experts = expert_prefixes(files.config());
    const TensorStore& tensors = files.tensors();
    const auto foreign = tensors.foreign();
    OtherBytes bytes;
    const auto bytes_of = [&](const std::string& name, std::span<const uint64_t> shape) {
        const bool is_expert = std::ranges::any_of(
            experts, [&](const std::string& prefix) { return name.starts_with(prefix); });
        if (is_expert || is_beyond_layers(name, files.config().num_layers)) return uint64_t{0};
        return std::accumulate(shape.begin(), shape.end(), kBf16Bytes, std::multiplies<>());
    };
    std::set<std::string> parts;
    for (const TensorInfo* tensor : tensors.list()) {
        const auto weight = foreign.weight_of(tensor->name);
        if (!weight) continue;
        const auto names = foreign.tensors_of(*weight);
        parts.insert(names.begin(), names.end());
        const auto shape = foreign.shape_of(*weight);
        if (shape.ok()) bytes.all += bytes_of(*weight, shape.value());
    }
    for (const TensorInfo* tensor : tensors.list()) {
        if (parts.contains(tensor->name) || tensor->name.ends_with("_scale_inv")) continue;
        const bool is_of_router = is_gate(tensor->name, files.config());
        const uint64_t num_parts = is_of_router ? gate_parts_max(tensor->dtype) : 1;
        const uint64_t of_tensor = num_parts * bytes_of(tensor->name, tensor->shape);
        bytes.all += of_tensor;
        if (is_of_router) bytes.routers += of_tensor;
    }
    return bytes;
}

}  // namespace

uint64_t packed_expert_bytes(const ModelConfig& config,
                             uint32_t layer,
                             uint32_t expert,
                             ops::NumericClass numeric_class) {
    const size_t width = expert_intermediate(config, layer, expert);
    ops::PackedShape shape{.num_outputs = 2 * width,
                           .depth = config.hidden,
                           .format = expert_format(config, layer, expert),
                           .numeric_class = numeric_class,
                           .is_gate_up = true};
    const uint64_t inward = shape.size_bytes();
    shape.num_outputs = config.hidden;
    shape.depth = width;
    shape.is_gate_up = false;
    return inward + shape.size_bytes();
}

ServingMemory serving_memory(const ModelFiles& files, const QuantisationConfig& formats) {
    ModelConfig config = files.config();
    config.quantisation = formats;
    const KvShape kv = kv_shape(config);
    const OtherBytes others = other_bytes(files);
    ServingMemory memory{.attention = others.all,
                         .routers = others.routers,
                         .kv_bytes_per_token = kv.bytes_per_token()};
    if (const auto windows = LayerWindows::of(config); windows.window > 0) {
        memory.kv_windowed_bytes_per_token = windows.num_windowed() * kv.layer_bytes_per_token;
        memory.kv_windowed_tokens =
            held_blocks(config.context_length, windows.window) * kKvBlockTokens;
    }
    for (uint32_t layer = 0; layer < config.num_layers; ++layer) {
        for (uint32_t e = 0; e < num_layer_experts(config, layer); ++e) {
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

}  // namespace afd::model
