// SPDX-License-Identifier: Apache-2.0
#include "model/checkpoint/attention_tensors.h"

#include <initializer_list>
#include <string>

#include "model/checkpoint/tensor_names.h"

namespace afd::model {

std::vector<AttentionMatrix> attention_matrices(const ModelConfig& config, uint32_t layer) {
    const std::string prefix = layer_tensor(layer, "self_attn.");
    const uint64_t hidden = config.hidden;
    const uint64_t heads = config.num_heads;
    const uint64_t query_rows = heads * config.qk_head_dim();
    const uint64_t rank = config.q_lora_rank;
    std::vector<AttentionMatrix> matrices;
    if (rank > 0) {
        matrices.push_back({prefix + "q_a_proj", rank, hidden, &AttentionTensors::q_a_proj});
        matrices.push_back({prefix + "q_b_proj", query_rows, rank, &AttentionTensors::q_proj});
    } else {
        matrices.push_back({prefix + "q_proj", query_rows, hidden, &AttentionTensors::q_proj});
    }
    matrices.push_back({prefix + "kv_a_proj_with_mqa",
                        uint64_t{config.kv_lora_rank} + config.qk_rope_head_dim,
                        hidden,
                        &AttentionTensors::kv_a_proj});
    matrices.push_back(
        {prefix + "o_proj", hidden, heads * config.v_head_dim, &AttentionTensors::o_proj});
    return matrices;
}

Result<AttentionTensors> read_attention_tensors(const TensorStore& tensors,
                                                const ModelConfig& config,
                                                uint32_t layer) {
    const auto read = [&](const char* name, std::initializer_list<uint64_t> shape) {
        return tensors.read_bf16(layer_tensor(layer, name), std::span(shape.begin(), shape.size()));
    };
    AttentionTensors out;
    AFD_ASSIGN(out.gamma_input, read("input_layernorm.weight", {config.hidden}));
    AFD_ASSIGN(out.gamma_post_attention, read("post_attention_layernorm.weight", {config.hidden}));
    for (const AttentionMatrix& matrix : attention_matrices(config, layer)) {
        AFD_ASSIGN(out.*matrix.field,
                   read_matrix(tensors,
                               matrix.prefix,
                               matrix.num_outputs,
                               matrix.depth,
                               config.quantisation.attention));
    }
    if (config.q_lora_rank > 0) {
        AFD_ASSIGN(out.gamma_q_a, read("self_attn.q_a_layernorm.weight", {config.q_lora_rank}));
    }
    const uint64_t latent = config.kv_lora_rank;
    AFD_ASSIGN(out.gamma_kv_a, read("self_attn.kv_a_layernorm.weight", {latent}));
    AFD_ASSIGN(
        out.kv_b_proj,
        read("self_attn.kv_b_proj.weight",
             {uint64_t{config.num_heads} * (config.qk_nope_head_dim + config.v_head_dim), latent}));
    return out;
}

}  // namespace afd::model
