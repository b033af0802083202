// SPDX-License-Identifier: Apache-2.0
#include "model/mla/mla_tensors.h"

#include <initializer_list>
#include <string>

#include "model/checkpoint/tensor_names.h"
#include "model/checkpoint/unread_tensor.h"

namespace afd::model {

std::vector<MlaMatrix> mla_matrices(const ops::MlaShape& shape, uint32_t layer) {
    const std::string prefix = layer_tensor(layer, "self_attn.");
    const uint64_t hidden = shape.hidden;
    const uint64_t query_rows = shape.query_columns();
    const uint64_t rank = shape.q_lora_rank;
    std::vector<MlaMatrix> matrices;
    if (rank > 0) {
        matrices.push_back({{prefix + "q_a_proj", rank, hidden}, &MlaTensors::q_a_proj});
        matrices.push_back({{prefix + "q_b_proj", query_rows, rank}, &MlaTensors::q_proj});
    } else {
        // Without the low rank the query is one matrix, in the field of the second of the two.
        matrices.push_back({{prefix + "q_proj", query_rows, hidden}, &MlaTensors::q_proj});
    }
    matrices.push_back(
        {{prefix + "kv_a_proj_with_mqa", shape.kv_columns(), hidden}, &MlaTensors::kv_a_proj});
    matrices.push_back({{prefix + "o_proj", hidden, shape.value_columns()}, &MlaTensors::o_proj});
    return matrices;
}

Result<MlaTensors> read_mla_tensors(const TensorStore& tensors,
                                    const ops::MlaShape& shape,
                                    ops::WeightFormat format,
                                    uint32_t layer) {
    const auto read = [&](const char* name, std::initializer_list<uint64_t> extents) {
        return tensors.read_bf16(layer_tensor(layer, name),
                                 std::span(extents.begin(), extents.size()));
    };
    MlaTensors out;
    AFD_ASSIGN(out.gamma_input, read("input_layernorm.weight", {shape.hidden}));
    for (const MlaMatrix& matrix : mla_matrices(shape, layer)) {
        const AttentionMatrix& stored = matrix.stored;
        AFD_TRY(refuse_unread(tensors, stored.prefix + ".bias", "attention_bias"));
        AFD_ASSIGN(out.*matrix.field,
                   read_matrix(tensors, stored.prefix, stored.num_outputs, stored.depth, format));
    }
    if (shape.q_lora_rank > 0) {
        AFD_ASSIGN(out.gamma_q_a, read("self_attn.q_a_layernorm.weight", {shape.q_lora_rank}));
    }
    const uint64_t latent = shape.kv_lora_rank;
    AFD_ASSIGN(out.gamma_kv_a, read("self_attn.kv_a_layernorm.weight", {latent}));
    AFD_TRY(
        refuse_unread(tensors, layer_tensor(layer, "self_attn.kv_b_proj.bias"), "attention_bias"));
    // Always bf16, whatever the others are: it is absorbed head by head.
    AFD_ASSIGN(out.kv_b_proj,
               read("self_attn.kv_b_proj.weight",
                    {shape.num_heads * (shape.qk_nope_head_dim + shape.v_head_dim), latent}));
    return out;
}

std::string latent_scale_name(uint32_t layer) {
    return layer_tensor(layer, "self_attn.quant_scale_ckv");
}

std::string key_scale_name(uint32_t layer) {
    return layer_tensor(layer, "self_attn.quant_scale_ckr");
}

}  // namespace afd::model
