// SPDX-License-Identifier: Apache-2.0
#pragma once

// Names of a checkpoint's tensors, as Hugging Face's DeepSeek family writes them.

#include <cstdint>
#include <string>

namespace afd::model {

// "model.layers.3.self_attn.o_proj.weight" for (3, "self_attn.o_proj.weight").
inline std::string layer_tensor(uint32_t layer, const std::string& name) {
    return "model.layers." + std::to_string(layer) + "." + name;
}

inline constexpr const char* kEmbeddingTensor = "model.embed_tokens.weight";
inline constexpr const char* kFinalNormTensor = "model.norm.weight";
inline constexpr const char* kHeadTensor = "lm_head.weight";  // Absent if tied to the embedding.

}  // namespace afd::model
