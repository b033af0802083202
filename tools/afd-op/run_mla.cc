// SPDX-License-Identifier: Apache-2.0
#include "ops/operators/mla_v3/mla_attention_v3.h"
#include "ops/operators/mla_v3/mla_prolog_v3.h"
#include "ops/reference/mla_attention_v3.h"
#include "ops/reference/mla_prolog_v3.h"
#include "tools/afd-op/run_operators.h"

namespace afd::tools {
namespace {

using ops::ConstTensorView;
using ops::MlaPrologV3Request;
using ops::TensorView;

size_t last_extent(const ConstTensorView& view) {
    return view.rank == 0 ? 0 : view.shape[view.rank - 1];
}

void take_attributes(const OperatorCall& call, MlaPrologV3Request& r) {
    r.rmsnorm_epsilon_cq = static_cast<float>(call.number("rmsnorm_epsilon_cq"));
    r.rmsnorm_epsilon_ckv = static_cast<float>(call.number("rmsnorm_epsilon_ckv"));
    r.query_norm_flag = call.flag("query_norm_flag");
    r.weight_quant_mode = call.integer("weight_quant_mode");
    r.kv_cache_quant_mode = call.integer("kv_cache_quant_mode");
    r.query_quant_mode = call.integer("query_quant_mode");
    r.ckvkr_repo_mode = call.integer("ckvkr_repo_mode");
    r.quant_scale_repo_mode = call.integer("quant_scale_repo_mode");
    r.tile_size = call.integer("tile_size");
    r.qc_qr_scale = static_cast<float>(call.number("qc_qr_scale"));
    r.kc_scale = static_cast<float>(call.number("kc_scale"));
}

void take_tensors(OperatorCall& call, MlaPrologV3Request& r) {
    r.token_x = call.input("token_x");
    r.weight_dq = call.input("weight_dq");
    r.weight_uq_qr = call.input("weight_uq_qr");
    r.weight_uk = call.input("weight_uk");
    r.weight_dkv_kr = call.input("weight_dkv_kr");
    r.rmsnorm_gamma_cq = call.input("rmsnorm_gamma_cq");
    r.rmsnorm_gamma_ckv = call.input("rmsnorm_gamma_ckv");
    r.rope_sin = call.input("rope_sin");
    r.rope_cos = call.input("rope_cos");
    r.kv_cache = call.in_place("kv_cache");
    r.kr_cache = call.in_place("kr_cache");
    r.cache_index = call.input("cache_index");
    r.dequant_scale_x = call.input("dequant_scale_x");
    r.dequant_scale_w_dq = call.input("dequant_scale_w_dq");
    r.dequant_scale_w_uq_qr = call.input("dequant_scale_w_uq_qr");
    r.dequant_scale_w_dkv_kr = call.input("dequant_scale_w_dkv_kr");
    r.quant_scale_ckv = call.input("quant_scale_ckv");
    r.quant_scale_ckr = call.input("quant_scale_ckr");
    r.smooth_scales_cq = call.input("smooth_scales_cq");
    r.actual_seq_len = call.input("actual_seq_len");
    r.k_nope_clip_alpha = call.input("k_nope_clip_alpha");
}

}  // namespace

Result<> run_mla_prolog_v3(OperatorCall& call) {
    MlaPrologV3Request r;
    const std::string cache_mode = call.word("cache_mode");
    r.cache_mode = cache_mode;
    take_attributes(call, r);
    take_tensors(call, r);
    AFD_ASSIGN(const ops::MlaPrologV3Shapes shapes, ops::mla_prolog_v3_shapes(r));
    r.query = call.output_like("query", shapes.query);
    r.query_rope = call.output_like("query_rope", shapes.query_rope);
    r.dequant_scale_q_nope = call.output_like("dequant_scale_q_nope", shapes.dequant_scale_q_nope);
    r.query_norm = call.output_like("query_norm", shapes.query_norm);
    r.dequant_scale_q_norm = call.output_like("dequant_scale_q_norm", shapes.dequant_scale_q_norm);
    if (call.is_reference()) return ops::reference::mla_prolog_v3(r);
    AFD_ASSIGN(const ops::MlaPrologV3Weights weights,
               ops::pack_mla_prolog_v3(r, ops::best_numeric_class()));
    const size_t num_tokens = r.token_x.num_elements() / last_extent(r.token_x);
    const size_t bytes = ops::mla_prolog_v3_workspace_bytes(weights.shape, num_tokens);
    return ops::mla_prolog_v3(r, weights, call.workspace(bytes), call.parallel());
}

Result<> run_mla_attention_v3(OperatorCall& call) {
    ops::MlaAttentionV3Request r;
    const std::string cache_mode = call.word("cache_mode");
    r.softmax_scale = static_cast<float>(call.number("softmax_scale"));
    r.cache_mode = cache_mode;
    r.kv_cache_quant_mode = call.integer("kv_cache_quant_mode");
    r.query_quant_mode = call.integer("query_quant_mode");
    r.tile_size = call.integer("tile_size");
    r.query = call.input("query");
    r.query_rope = call.input("query_rope");
    r.dequant_scale_q_nope = call.input("dequant_scale_q_nope");
    r.kv_cache = call.input("kv_cache");
    r.kr_cache = call.input("kr_cache");
    r.positions = call.input("positions");
    r.sequence_index = call.input("sequence_index");
    r.block_table = call.input("block_table");
    r.actual_seq_len = call.input("actual_seq_len");
    r.quant_scale_ckv = call.input("quant_scale_ckv");
    r.quant_scale_ckr = call.input("quant_scale_ckr");
    r.weight_uv = call.input("weight_uv");
    r.weight_o = call.input("weight_o");
    AFD_ASSIGN(const TensorView out, ops::mla_attention_v3_shapes(r));
    r.attention_out = call.output_like("attention_out", out);
    if (call.is_reference()) return ops::reference::mla_attention_v3(r);
    AFD_ASSIGN(const ops::MlaAttentionV3Weights weights,
               ops::pack_mla_attention_v3(r, ops::best_numeric_class()));
    const ops::MlaShape shape{.kv_lora_rank = last_extent(r.query),
                              .num_heads = r.weight_uv.shape[0],
                              .qk_rope_head_dim = last_extent(r.query_rope),
                              .v_head_dim = r.weight_uv.shape[1]};
    const size_t bytes = ops::mla_attention_v3_workspace_bytes(
        shape, r.positions.num_elements(), call.parallel().num_threads());
    return ops::mla_attention_v3(r, weights, call.workspace(bytes), call.parallel());
}

}  // namespace afd::tools
