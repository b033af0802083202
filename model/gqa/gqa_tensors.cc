// SPDX-License-Identifier: Apache-2.0
#include "model/gqa/gqa_tensors.h"

#include <array>
#include <cmath>
#include <initializer_list>
#include <string>

#include "model/checkpoint/tensor_names.h"
#include "model/checkpoint/unread_tensor.h"

namespace afd::model {
namespace {

// What some families have and this one has not: then a key of config.json is wrong.
Result<> refuse_other_parts(const TensorStore& tensors, const GqaTraits& traits, uint32_t layer) {
    const auto refuse = [&](std::initializer_list<const char*> names,
                            const char* keys) -> Result<> {
        for (const char* name : names) {
            AFD_TRY(refuse_unread(tensors, layer_tensor(layer, name), keys));
        }
        return {};
    };
    if (!traits.has_qkv_bias) {
        AFD_TRY(refuse({"self_attn.q_proj.bias", "self_attn.k_proj.bias", "self_attn.v_proj.bias"},
                       "attention_bias or qkv_bias"));
    }
    if (!traits.has_o_bias) AFD_TRY(refuse({"self_attn.o_proj.bias"}, "attention_bias"));
    if (traits.qk_norm == QkNorm::kNone) {
        AFD_TRY(refuse({"self_attn.q_norm.weight", "self_attn.k_norm.weight"}, "use_qk_norm"));
    }
    return {};
}

}  // namespace

std::vector<GqaMatrix> gqa_matrices(const ops::GqaShape& shape, uint32_t layer) {
    const std::string prefix = layer_tensor(layer, "self_attn.");
    return {{{prefix + "q_proj", shape.query_columns(), shape.hidden}, &GqaTensors::q_proj},
            {{prefix + "k_proj", shape.kv_columns(), shape.hidden}, &GqaTensors::k_proj},
            {{prefix + "v_proj", shape.kv_columns(), shape.hidden}, &GqaTensors::v_proj},
            {{prefix + "o_proj", shape.hidden, shape.query_columns()}, &GqaTensors::o_proj}};
}

Result<GqaTensors> read_gqa_tensors(const TensorStore& tensors,
                                    const ModelConfig& config,
                                    const GqaTraits& traits,
                                    uint32_t layer) {
    const ops::GqaShape& shape = traits.shape;
    const auto read = [&](const char* name, uint64_t size) {
        const std::array<uint64_t, 1> extents = {size};
        return tensors.read_bf16(layer_tensor(layer, name), extents);
    };
    AFD_TRY(refuse_other_parts(tensors, traits, layer));
    GqaTensors out;
    AFD_ASSIGN(out.input_norm, read_norm(tensors, config, layer_tensor(layer, "input_layernorm")));
    for (const GqaMatrix& matrix : gqa_matrices(shape, layer)) {
        const AttentionMatrix& stored = matrix.stored;
        AFD_ASSIGN(out.*matrix.field,
                   read_matrix(tensors,
                               stored.prefix,
                               stored.num_outputs,
                               stored.depth,
                               config.quantisation.attention));
    }
    if (traits.has_qkv_bias) {
        AFD_ASSIGN(out.q_bias, read("self_attn.q_proj.bias", shape.query_columns()));
        AFD_ASSIGN(out.k_bias, read("self_attn.k_proj.bias", shape.kv_columns()));
        AFD_ASSIGN(out.v_bias, read("self_attn.v_proj.bias", shape.kv_columns()));
    }
    if (traits.has_o_bias) {
        AFD_ASSIGN(out.o_bias, read("self_attn.o_proj.bias", shape.hidden));
    }
    if (traits.has_sinks) {
        AFD_ASSIGN(const auto sinks, read("self_attn.sinks", shape.num_heads));
        for (const ops::Bf16 sink : sinks) out.sinks.push_back(ops::to_float(sink));
    }
    if (traits.qk_norm != QkNorm::kNone) {
        const bool is_row = traits.qk_norm == QkNorm::kRow;
        AFD_ASSIGN(
            out.q_gamma,
            read("self_attn.q_norm.weight", is_row ? shape.query_columns() : shape.head_dim));
        AFD_ASSIGN(out.k_gamma,
                   read("self_attn.k_norm.weight", is_row ? shape.kv_columns() : shape.head_dim));
    }
    return out;
}

double gqa_softmax_scale(const ops::GqaShape& shape) {
    return 1.0 / std::sqrt(static_cast<double>(shape.head_dim));
}

Result<ops::RopeTable> make_gqa_rope(const ModelConfig& config, const GqaTraits& traits) {
    return ops::RopeTable::make({.dim = traits.rotary_dim,
                                 .theta = config.rope_theta,
                                 .num_positions = config.context_length,
                                 .yarn = config.yarn,
                                 .long_rope = config.long_rope});
}

}  // namespace afd::model
