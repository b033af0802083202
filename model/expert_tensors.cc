// SPDX-License-Identifier: Apache-2.0
#include "model/expert_tensors.h"

#include <array>
#include <string>

#include "model/tensor_names.h"

namespace afd::model {
namespace {

using ops::Bf16;

// Reads `prefix`gate_proj.weight and its two companions.
Result<ExpertTensors> read_mlp(const TensorStore& tensors,
                               const std::string& prefix,
                               uint64_t hidden,
                               uint64_t intermediate) {
    const std::array<uint64_t, 2> inward = {intermediate, hidden};
    const std::array<uint64_t, 2> outward = {hidden, intermediate};
    ExpertTensors expert{hidden, intermediate, {}, {}, {}};
    AFD_ASSIGN(expert.gate, tensors.read_bf16(prefix + "gate_proj.weight", inward));
    AFD_ASSIGN(expert.up, tensors.read_bf16(prefix + "up_proj.weight", inward));
    AFD_ASSIGN(expert.down, tensors.read_bf16(prefix + "down_proj.weight", outward));
    return expert;
}

Result<ExpertTensors> read_fused(const TensorStore& tensors,
                                 const std::string& prefix,
                                 const ModelConfig& config,
                                 uint32_t index) {
    const uint64_t hidden = config.hidden;
    const uint64_t intermediate = config.moe_intermediate;
    const std::array<uint64_t, 3> inward = {config.num_experts, 2 * intermediate, hidden};
    const std::array<uint64_t, 3> outward = {config.num_experts, hidden, intermediate};
    ExpertTensors expert{hidden, intermediate, {}, {}, {}};
    AFD_ASSIGN(const std::vector<Bf16> gate_up,
               tensors.read_bf16_slice(prefix + "gate_up_proj", inward, index, 1));
    const auto middle = gate_up.begin() + static_cast<std::ptrdiff_t>(gate_up.size() / 2);
    expert.gate.assign(gate_up.begin(), middle);
    expert.up.assign(middle, gate_up.end());
    AFD_ASSIGN(expert.down, tensors.read_bf16_slice(prefix + "down_proj", outward, index, 1));
    return expert;
}

}  // namespace

ops::Rows<const Bf16> ExpertTensors::gate_rows() const {
    return ops::make_rows(gate.data(), intermediate, hidden);
}

ops::Rows<const Bf16> ExpertTensors::up_rows() const {
    return ops::make_rows(up.data(), intermediate, hidden);
}

ops::Rows<const Bf16> ExpertTensors::down_rows() const {
    return ops::make_rows(down.data(), hidden, intermediate);
}

Result<ExpertTensors> read_expert_tensors(const TensorStore& tensors,
                                          const ModelConfig& config,
                                          uint32_t layer,
                                          uint32_t expert) {
    const bool is_moe = layer < config.num_layers && config.is_moe_layer(layer);
    const uint32_t num_experts = is_moe ? config.num_experts + config.num_shared_slots() : 1;
    if (layer >= config.num_layers || expert >= num_experts) {
        return Error{Code::kInvalidArgument,
                     "layer " + std::to_string(layer) + ", expert " + std::to_string(expert) +
                         ": the model has " + std::to_string(config.num_layers) +
                         " layers and this one " + std::to_string(num_experts) + " experts"};
    }
    if (!is_moe) {
        return read_mlp(tensors, layer_tensor(layer, "mlp."), config.hidden, config.intermediate);
    }
    if (expert == config.num_experts) {
        return read_mlp(tensors,
                        layer_tensor(layer, "mlp.shared_experts."),
                        config.hidden,
                        config.shared_intermediate());
    }
    const std::string experts = layer_tensor(layer, "mlp.experts.");
    if (tensors.find(experts + "gate_up_proj") != nullptr) {
        return read_fused(tensors, experts, config, expert);
    }
    return read_mlp(
        tensors, experts + std::to_string(expert) + ".", config.hidden, config.moe_intermediate);
}

}  // namespace afd::model
