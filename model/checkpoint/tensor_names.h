// SPDX-License-Identifier: Apache-2.0
#pragma once

// Names of a checkpoint's tensors, as Hugging Face's decoders write them. Every family has those at
// both ends; what it calls the parts of a layer's FFN half is TensorNames. The tensors of attention
// are named where they are read, by the kind of attention.

#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>

namespace afd::model {

// "model.layers.3.self_attn.o_proj.weight" for (3, "self_attn.o_proj.weight").
inline std::string layer_tensor(uint32_t layer, const std::string& name) {
    return "model.layers." + std::to_string(layer) + "." + name;
}

// Whether the tensor is of a layer from `num_layers` on: multi-token prediction, which checkpoints
// keep behind the decoder's layers and no family here uses.
inline bool is_beyond_layers(std::string_view name, uint32_t num_layers) {
    constexpr std::string_view kPrefix = "model.layers.";
    if (!name.starts_with(kPrefix)) return false;
    name.remove_prefix(kPrefix.size());
    uint32_t layer = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
    return error == std::errc() && end != name.data() + name.size() && *end == '.' &&
           layer >= num_layers;
}

inline constexpr const char* kEmbeddingTensor = "model.embed_tokens.weight";
inline constexpr const char* kFinalNorm = "model.norm";       // Before ".weight".
inline constexpr const char* kHeadTensor = "lm_head.weight";  // Absent if tied to the embedding.
inline constexpr const char* kHeadBiasTensor = "lm_head.bias";

// Behind "model.layers.3."; the defaults are those of DeepSeek. Before ".weight" stand a norm, a
// router, and gate, up and down behind an MLP's name; before ".7.", ".": experts and the other
// MLPs.
struct TensorNames {
    std::string ffn_norm = "post_attention_layernorm";
    std::string router = "mlp.gate";
    std::string router_bias = "mlp.gate.e_score_correction_bias";  // The whole name.
    std::string router_logit_bias = "";  // The whole name; added to the logits; "": none.
    std::string experts = "mlp.experts";
    std::string shared_experts = "mlp.shared_experts";
    std::string shared_gate = "";  // By whose sigmoid the shared experts are multiplied; "": none.
    std::string dense = "mlp";
    std::string gate = "gate_proj";
    std::string up = "up_proj";
    std::string down = "down_proj";
};

}  // namespace afd::model
