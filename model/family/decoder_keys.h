// SPDX-License-Identifier: Apache-2.0
#pragma once

// The keys of a config.json that families share, but for those of the rotation
// (model/family/rope_keys.h). Each reader fills its part of a ModelConfig; problems stay in `keys`.

#include "model/checkpoint/config.h"
#include "model/json/key_reader.h"
#include "ops/format/expert_slots.h"

namespace afd::model {

inline constexpr uint32_t kExpertsMax = 65536;  // Of a layer,
// and of all layers together: Kimi-K2 has 23,424.
inline constexpr uint32_t kAllExpertsMax = 1u << 20;
inline constexpr uint32_t kTopKMax = ops::kTopKMax;
inline constexpr uint32_t kContextMax = 1u << 24;

// vocab_size, hidden_size, num_hidden_layers, max_position_embeddings, rms_norm_eps,
// tie_word_embeddings.
void read_dimensions(KeyReader& keys, ModelConfig& config);

// quantization_config: config.quantisation, and config.form where another program than afd-quantize
// has written it (model/family/foreign_keys.h). Of fp8 blocks of 128 x 128 are read, of gpt-oss
// mxfp4; another quant_method is refused.
void read_quantisation(KeyReader& keys, ModelConfig& config);

}  // namespace afd::model
