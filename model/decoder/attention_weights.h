// SPDX-License-Identifier: Apache-2.0
#pragma once

// AttentionLayerWeights: what the attention role holds of one layer, packed for one numeric class:
// both layer norms, the MLA projections and the output projection. The gates are
// model/decoder/router.h, the experts model/decoder/expert_weights.h.

#include <cstdint>
#include <vector>

#include "model/checkpoint/model_files.h"
#include "ops/attention/mla_prolog.h"
#include "ops/attention/rope.h"
#include "ops/format/numeric_class.h"
#include "ops/linear/linear.h"
#include "proto/status.h"

namespace afd::model {

// The norms inside MLA use this epsilon whatever rms_norm_eps says, as the checkpoints' own code
// (transformers) builds them.
inline constexpr float kLatentNormEpsilon = 1e-6f;

struct AttentionLayerWeights {
    std::vector<ops::Bf16> gamma_input;           // [hidden]
    std::vector<ops::Bf16> gamma_post_attention;  // [hidden]
    ops::MlaWeights mla;
    ops::PackedLinear o_proj;  // [hidden, num_heads * v_head_dim]
};

ops::MlaShape mla_shape(const ModelConfig& config);

// The rotary table over the whole context. Errors: kInvalidArgument.
Result<ops::RopeTable> make_rope_table(const ModelConfig& config);

// Errors: those of TensorStore; each names the file, the tensor and both shapes.
Result<AttentionLayerWeights> load_attention_layer(const ModelFiles& files,
                                                   uint32_t layer,
                                                   ops::NumericClass numeric_class);

}  // namespace afd::model
