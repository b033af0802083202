// SPDX-License-Identifier: Apache-2.0
#include "model/checkpoint/expert_tensors.h"

#include <array>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "model/checkpoint/tensor_names.h"
#include "proto/failure.h"

namespace afd::model {
namespace {

using ops::Bf16;

Result<ExpertTensors> read_fused(const TensorStore& tensors,
                                 const std::string& prefix,
                                 const ModelConfig& config,
                                 uint32_t index,
                                 ExpertPart part) {
    const uint64_t hidden = config.hidden;
    const uint64_t intermediate = config.moe_intermediate;
    const std::array<uint64_t, 3> inward = {config.num_experts, 2 * intermediate, hidden};
    const std::array<uint64_t, 3> outward = {config.num_experts, hidden, intermediate};
    const auto matrix = [](size_t num_outputs, size_t depth, std::vector<Bf16> values) {
        StoredMatrix stored{.num_outputs = num_outputs, .depth = depth};
        stored.bf16 = std::move(values);
        return stored;
    };
    ExpertTensors mlp;
    if (part != ExpertPart::kDown) {
        AFD_ASSIGN(const std::vector<Bf16> gate_up,
                   tensors.read_bf16_slice(prefix + "gate_up_proj", inward, index, 1));
        // Rows of the gate first, then those of up, as the fused layout has them.
        const auto middle = gate_up.begin() + static_cast<std::ptrdiff_t>(gate_up.size() / 2);
        mlp.gate = matrix(intermediate, hidden, {gate_up.begin(), middle});
        mlp.up = matrix(intermediate, hidden, {middle, gate_up.end()});
    }
    if (part != ExpertPart::kGateUp) {
        AFD_ASSIGN(std::vector<Bf16> down,
                   tensors.read_bf16_slice(prefix + "down_proj", outward, index, 1));
        mlp.down = matrix(hidden, intermediate, std::move(down));
    }
    return mlp;
}

}  // namespace

uint32_t num_layer_experts(const ModelConfig& config, uint32_t layer) {
    return config.is_moe_layer(layer) ? config.num_experts + config.num_shared_slots() : 1;
}

uint32_t expert_intermediate(const ModelConfig& config, uint32_t layer, uint32_t expert) {
    if (!config.is_moe_layer(layer)) return config.intermediate;
    return expert < config.num_experts ? config.moe_intermediate : config.shared_intermediate;
}

bool is_routed_expert(const ModelConfig& config, uint32_t layer, uint32_t expert) {
    return config.is_moe_layer(layer) && expert < config.num_experts;
}

ops::WeightFormat expert_format(const ModelConfig& config, uint32_t layer, uint32_t expert) {
    const QuantisationConfig& quantisation = config.quantisation;
    return quantisation.has_bf16_shared && !is_routed_expert(config, layer, expert)
               ? ops::WeightFormat::kBf16
               : quantisation.experts;
}

std::string expert_prefix(const ModelConfig& config, uint32_t layer, uint32_t expert) {
    const TensorNames& names = config.names;
    if (!config.is_moe_layer(layer)) return layer_tensor(layer, names.dense) + ".";
    // All shared experts of a layer are stored as one MLP of their joint width, so they are one
    // expert here.
    if (expert == config.num_experts) return layer_tensor(layer, names.shared_experts) + ".";
    return fmt::format("{}.{}.", layer_tensor(layer, names.experts), expert);
}

Error no_such_expert(const ModelConfig& config, uint32_t layer, uint32_t expert) {
    const uint32_t num_experts = layer < config.num_layers ? num_layer_experts(config, layer) : 0;
    return invalid_argument("layer {}, expert {}: the model has {} layers and this one {} experts",
                            with(layer, expert, config.num_layers, num_experts));
}

Result<std::vector<float>> read_smooth_scale(const TensorStore& tensors,
                                             const ModelConfig& config,
                                             uint32_t layer,
                                             uint32_t expert) {
    if (!config.quantisation.smooth) return std::vector<float>();
    const std::string name = expert_prefix(config, layer, expert) + "smooth_scale";
    const std::array<uint64_t, 1> shape = {config.hidden};
    AFD_ASSIGN(std::vector<float> scales, tensors.read_f32(name, shape));
    for (size_t i = 0; i < scales.size(); ++i) {
        // Zero would erase a channel, and a NaN would turn up in the logits, layers later.
        if (std::isfinite(scales[i]) && scales[i] > 0) continue;
        return data_loss("tensor {}: element [{}] is {:f}; smooth scales are finite and positive",
                         with(name, i, scales[i]));
    }
    return scales;
}

Result<std::vector<float>> read_output_gate(const TensorStore& tensors,
                                            const ModelConfig& config,
                                            uint32_t layer,
                                            uint32_t expert) {
    const bool is_shared = config.is_moe_layer(layer) && expert == config.num_experts;
    if (!is_shared || config.names.shared_gate.empty()) return std::vector<float>();
    const std::array<uint64_t, 2> shape = {1, config.hidden};
    const std::string name = layer_tensor(layer, config.names.shared_gate + ".weight");
    AFD_ASSIGN(const std::vector<Bf16> stored, tensors.read_bf16(name, shape));
    std::vector<float> gate;
    for (const Bf16 value : stored) gate.push_back(ops::to_float(value));
    return gate;
}

Result<ExpertBiases> read_expert_biases(const TensorStore& tensors,
                                        const ModelConfig& config,
                                        uint32_t layer,
                                        uint32_t expert) {
    const std::string prefix = layer_tensor(layer, config.names.experts) + ".";
    const std::array<uint64_t, 2> inward = {config.num_experts,
                                            uint64_t{2} * config.moe_intermediate};
    const std::array<uint64_t, 2> outward = {config.num_experts, config.hidden};
    ExpertBiases biases;
    AFD_ASSIGN(const std::vector<Bf16> gate_up,
               tensors.read_bf16_slice(prefix + "gate_up_proj_bias", inward, expert, 1));
    for (size_t i = 0; i < gate_up.size(); i += 2) {
        biases.gate.push_back(gate_up[i]);
        biases.up.push_back(gate_up[i + 1]);
    }
    AFD_ASSIGN(biases.down, tensors.read_bf16_slice(prefix + "down_proj_bias", outward, expert, 1));
    return biases;
}

Result<ExpertTensors> read_expert_tensors(const TensorStore& tensors,
                                          const ModelConfig& config,
                                          uint32_t layer,
                                          uint32_t expert,
                                          ExpertPart part) {
    const uint32_t num_experts = layer < config.num_layers ? num_layer_experts(config, layer) : 0;
    if (expert >= num_experts) return no_such_expert(config, layer, expert);
    const ops::WeightFormat format = expert_format(config, layer, expert);
    const std::string experts = layer_tensor(layer, config.names.experts) + ".";
    const bool is_routed = is_routed_expert(config, layer, expert);
    const bool is_of_form = tensors.form().kind == ForeignKind::kFusedExperts;
    if (is_routed && !is_of_form && tensors.find(experts + "gate_up_proj") != nullptr) {
        if (format == ops::WeightFormat::kBf16) {
            return read_fused(tensors, experts, config, expert, part);
        }
        // What afd-quantize writes has a tensor for each expert.
        return unimplemented(
            "tensor {}gate_up_proj holds all experts of its layer, and config.json says {}; "
            "supported: bf16, fp16 and fp32{}",
            with(experts, ops::name_of(format), kForeignRemedy));
    }
    const std::string prefix = expert_prefix(config, layer, expert);
    const uint64_t hidden = config.hidden;
    const uint64_t intermediate = expert_intermediate(config, layer, expert);
    const TensorNames& names = config.names;
    ExpertTensors mlp;
    const auto read = [&](const std::string& name, uint64_t num_outputs, uint64_t depth) {
        return read_matrix(tensors, prefix + name, num_outputs, depth, format);
    };
    if (part != ExpertPart::kDown) {
        AFD_ASSIGN(mlp.gate, read(names.gate, intermediate, hidden));
        AFD_ASSIGN(mlp.up, read(names.up, intermediate, hidden));
    }
    if (part == ExpertPart::kGateUp) return mlp;
    AFD_ASSIGN(mlp.down, read(names.down, hidden, intermediate));
    if (part == ExpertPart::kDown) return mlp;
    AFD_ASSIGN(mlp.smooth, read_smooth_scale(tensors, config, layer, expert));
    AFD_ASSIGN(mlp.output_gate, read_output_gate(tensors, config, layer, expert));
    if (config.has_expert_bias && is_routed) {
        AFD_ASSIGN(mlp.bias, read_expert_biases(tensors, config, layer, expert));
    }
    return mlp;
}

}  // namespace afd::model
