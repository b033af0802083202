// SPDX-License-Identifier: Apache-2.0
#include "model/checkpoint/router_tensors.h"

#include <array>
#include <string>

#include "model/checkpoint/tensor_names.h"
#include "proto/failure.h"

namespace afd::model {

namespace {

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

Result<RouterTensors> read_router_tensors(const TensorStore& tensors,
                                          const ModelConfig& config,
                                          uint32_t layer) {
    const std::array<uint64_t, 2> shape = {config.num_experts, config.hidden};
    RouterTensors router;
    AFD_ASSIGN(router.gate,
               tensors.read_bf16(layer_tensor(layer, config.names.router + ".weight"), shape));
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
