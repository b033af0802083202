// SPDX-License-Identifier: Apache-2.0
#include "model/checkpoint/norm_tensors.h"

#include <array>

namespace afd::model {

Result<NormTensors> read_norm(const TensorStore& tensors,
                              const ModelConfig& config,
                              const std::string& name) {
    const std::array<uint64_t, 1> shape = {config.hidden};
    NormTensors norm;
    AFD_ASSIGN(norm.gamma, tensors.read_bf16(name + ".weight", shape));
    if (config.has_norm_bias) {
        AFD_ASSIGN(norm.beta, tensors.read_bf16(name + ".bias", shape));
    }
    return norm;
}

}  // namespace afd::model
