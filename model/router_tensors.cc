// SPDX-License-Identifier: Apache-2.0
#include "model/router_tensors.h"

#include <array>

#include "model/tensor_names.h"

namespace afd::model {

Result<RouterTensors> read_router_tensors(const TensorStore& tensors,
                                          const ModelConfig& config,
                                          uint32_t layer) {
    const std::array<uint64_t, 2> shape = {config.num_experts, config.hidden};
    RouterTensors router;
    AFD_ASSIGN(router.gate, tensors.read_bf16(layer_tensor(layer, "mlp.gate.weight"), shape));
    if (config.topk_method == TopkMethod::kNoauxTc) {
        AFD_ASSIGN(router.bias,
                   tensors.read_f32(layer_tensor(layer, "mlp.gate.e_score_correction_bias"),
                                    std::span(shape).first(1)));
    }
    return router;
}

}  // namespace afd::model
