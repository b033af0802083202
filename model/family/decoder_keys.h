// SPDX-License-Identifier: Apache-2.0
#pragma once

// The keys of a config.json that families share. Each reader fills its part of a ModelConfig;
// problems stay in `keys`.

#include "model/checkpoint/config.h"
#include "model/checkpoint/key_reader.h"

namespace afd::model {

inline constexpr uint32_t kExpertsMax = 65536;
inline constexpr uint32_t kTopKMax = 64;

// vocab_size, hidden_size, num_hidden_layers, max_position_embeddings, rms_norm_eps,
// tie_word_embeddings.
void read_dimensions(KeyReader& keys, ModelConfig& config);

// rope_theta and rope_scaling (none or yarn), or (transformers 5) both inside rope_parameters.
// REQUIRES: read_dimensions() before it.
void read_rope(KeyReader& keys, ModelConfig& config);

// The same with longrope instead of yarn, of a rotation of `dim` elements: short_factor and
// short_mscale where max_position_embeddings is at most original_max_position_embeddings, else
// long_factor and long_mscale. So what a token's rotation is does not depend on what follows it.
// REQUIRES: as read_rope().
void read_long_rope(KeyReader& keys, size_t dim, ModelConfig& config);

// quantization_config as afd-quantize writes it, and fp8 in blocks of 128 x 128 as models are
// released; that of other programs is refused.
void read_quantisation(KeyReader& keys, ModelConfig& config);

}  // namespace afd::model
