// SPDX-License-Identifier: Apache-2.0
#pragma once

// MlaLayerWeights: what MlaBlock holds of one layer, packed for one numeric class: the norm before
// attention, the MLA projections and the output projection.

#include <cstdint>
#include <vector>

#include "model/checkpoint/config.h"
#include "model/checkpoint/tensor_store.h"
#include "ops/attention/mla_prolog.h"
#include "ops/attention/rope.h"
#include "ops/format/numeric_class.h"
#include "ops/linear/linear.h"
#include "proto/status.h"

namespace afd::model {

// The norms inside MLA use this epsilon whatever rms_norm_eps says, as the checkpoints' own code
// (transformers) builds them.
inline constexpr float kLatentNormEpsilon = 1e-6f;

struct MlaLayerWeights {
    std::vector<ops::Bf16> gamma_input;  // [hidden]
    ops::MlaWeights mla;
    ops::PackedLinear o_proj;  // [hidden, num_heads * v_head_dim]
};

// (nope dim + rope dim)^-1/2, times the square of YaRN's mscale for mscale_all_dim.
double mla_softmax_scale(const ModelConfig& config, const ops::MlaShape& shape);

// The rotary table over the whole context. Errors: kInvalidArgument.
Result<ops::RopeTable> make_mla_rope(const ModelConfig& config, const ops::MlaShape& shape);

// Errors: those of TensorStore; each names the file, the tensor and both shapes.
Result<MlaLayerWeights> load_mla_layer(const ModelConfig& config,
                                       const ops::MlaShape& shape,
                                       const TensorStore& tensors,
                                       uint32_t layer,
                                       ops::NumericClass numeric_class);

}  // namespace afd::model
