// SPDX-License-Identifier: Apache-2.0
#include "model/checkpoint/router_tensors.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <string>

#include "model/checkpoint/tensor_names.h"
#include "proto/failure.h"

namespace afd::model {
namespace {

// `values` →bf16; what that leaves stays in `values`.
std::vector<ops::Bf16> take_part(std::vector<float>& values) {
    std::vector<ops::Bf16> part(values.size());
    for (size_t i = 0; i < values.size(); ++i) {
        part[i] = ops::from_float(values[i]);
        const float taken = ops::to_float(part[i]);
        // Infinity and NaN are themselves, and leave nothing.
        values[i] = std::isfinite(taken) ? values[i] - taken : 0.0f;
    }
    return part;
}

Result<std::vector<ops::Bf16>> read_gate(const TensorStore& tensors,
                                         const std::string& name,
                                         std::span<const uint64_t> shape) {
    const TensorInfo* tensor = tensors.find(name);
    const size_t parts_max = tensor == nullptr ? 1 : gate_parts_max(tensor->dtype);
    if (parts_max == 1) return tensors.read_bf16(name, shape);
    AFD_ASSIGN(std::vector<float> left, tensors.read_f32(name, shape));
    std::vector<ops::Bf16> gate = take_part(left);
    for (size_t part = 1; part < parts_max; ++part) {
        if (std::ranges::all_of(left, [](float value) { return value == 0; })) break;
        const std::vector<ops::Bf16> next = take_part(left);
        gate.insert(gate.end(), next.begin(), next.end());
    }
    return gate;
}

Result<std::vector<int32_t>> read_token_experts(const TensorStore& tensors,
                                                const ModelConfig& config,
                                                uint32_t layer) {
    const std::string name = layer_tensor(layer, config.names.router + ".tid2eid");
    const std::array<uint64_t, 2> shape = {config.vocab_size, config.top_k};
    AFD_ASSIGN(const std::vector<int64_t> stored, tensors.read_integers(name, shape));
    std::vector<int32_t> experts;
    experts.reserve(stored.size());
    for (const int64_t expert : stored) {
        // Judged once at load, so that routing need not look at them for each token.
        if (expert < 0 || expert >= int64_t{config.num_experts}) {
            return data_loss(
                "{}: token {} names expert {}; allowed are 0 to {}",
                with(name, experts.size() / config.top_k, expert, config.num_experts - 1));
        }
        experts.push_back(static_cast<int32_t>(expert));
    }
    return experts;
}

}  // namespace

size_t gate_parts_max(StorageType dtype) {
    if (dtype == StorageType::kF32) return 3;
    return dtype == StorageType::kF16 ? 2 : 1;
}

Result<RouterTensors> read_router_tensors(const TensorStore& tensors,
                                          const ModelConfig& config,
                                          uint32_t layer) {
    const std::array<uint64_t, 2> shape = {config.num_experts, config.hidden};
    RouterTensors router;
    AFD_ASSIGN(router.gate,
               read_gate(tensors, layer_tensor(layer, config.names.router + ".weight"), shape));
    if (!config.names.router_logit_bias.empty()) {
        AFD_ASSIGN(router.logit_bias,
                   tensors.read_f32(layer_tensor(layer, config.names.router_logit_bias),
                                    std::span(shape).first(1)));
    }
    if (config.is_hash_layer(layer)) {
        AFD_ASSIGN(router.token_experts, read_token_experts(tensors, config, layer));
    } else if (config.topk_method == TopkMethod::kNoauxTc) {
        AFD_ASSIGN(router.bias,
                   tensors.read_f32(layer_tensor(layer, config.names.router_bias),
                                    std::span(shape).first(1)));
    }
    return router;
}

}  // namespace afd::model
