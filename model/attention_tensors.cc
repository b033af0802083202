// SPDX-License-Identifier: Apache-2.0
#include "model/attention_tensors.h"

#include <initializer_list>
#include <string>

#include "model/tensor_names.h"

namespace afd::model {

Result<AttentionTensors> read_attention_tensors(const TensorStore& tensors,
                                                const ModelConfig& config,
                                                uint32_t layer) {
    const auto read = [&](const char* name, std::initializer_list<uint64_t> shape) {
        return tensors.read_bf16(layer_tensor(layer, name), std::span(shape.begin(), shape.size()));
    };
    const uint64_t hidden = config.hidden;
    const uint64_t heads = config.num_heads;
    const uint64_t query_rows = heads * config.qk_head_dim();
    AttentionTensors out;
    AFD_ASSIGN(out.gamma_input, read("input_layernorm.weight", {hidden}));
    AFD_ASSIGN(out.gamma_post_attention, read("post_attention_layernorm.weight", {hidden}));
    if (config.q_lora_rank > 0) {
        const uint64_t rank = config.q_lora_rank;
        AFD_ASSIGN(out.q_a_proj, read("self_attn.q_a_proj.weight", {rank, hidden}));
        AFD_ASSIGN(out.gamma_q_a, read("self_attn.q_a_layernorm.weight", {rank}));
        AFD_ASSIGN(out.q_proj, read("self_attn.q_b_proj.weight", {query_rows, rank}));
    } else {
        AFD_ASSIGN(out.q_proj, read("self_attn.q_proj.weight", {query_rows, hidden}));
    }
    const uint64_t latent = config.kv_lora_rank;
    AFD_ASSIGN(
        out.kv_a_proj,
        read("self_attn.kv_a_proj_with_mqa.weight", {latent + config.qk_rope_head_dim, hidden}));
    AFD_ASSIGN(out.gamma_kv_a, read("self_attn.kv_a_layernorm.weight", {latent}));
    AFD_ASSIGN(out.kv_b_proj,
               read("self_attn.kv_b_proj.weight",
                    {heads * (config.qk_nope_head_dim + config.v_head_dim), latent}));
    AFD_ASSIGN(out.o_proj, read("self_attn.o_proj.weight", {hidden, heads * config.v_head_dim}));
    return out;
}

}  // namespace afd::model
