// SPDX-License-Identifier: Apache-2.0
#pragma once

// NormTensors: the weights of a norm of the residual stream as the checkpoint stores them: gamma of
// an RMSNorm, gamma and beta of a LayerNorm (ModelConfig::has_norm_bias).

#include <span>
#include <string>
#include <vector>

#include "model/checkpoint/config.h"
#include "model/checkpoint/tensor_store.h"
#include "ops/tensor/bf16.h"
#include "proto/status.h"

namespace afd::model {

struct NormTensors {
    std::vector<ops::Bf16> gamma;  // [hidden]
    std::vector<ops::Bf16> beta;   // [hidden] of a LayerNorm; empty of an RMSNorm.
};

// The same, to be passed on.
struct NormView {
    NormView(const NormTensors& norm)  // Implicit, as the next: norms pass as they are.
        : gamma(norm.gamma), beta(norm.beta) {}
    NormView(const std::vector<ops::Bf16>& gamma_only) : gamma(gamma_only) {}

    bool is_layer_norm() const { return !beta.empty(); }

    std::span<const ops::Bf16> gamma;
    std::span<const ops::Bf16> beta;
};

// `name`: before ".weight" and ".bias". Errors: those of TensorStore::read_bf16().
Result<NormTensors> read_norm(const TensorStore& tensors,
                              const ModelConfig& config,
                              const std::string& name);

}  // namespace afd::model
