// SPDX-License-Identifier: Apache-2.0

#include <string>

#include "ops/attention/mla_prolog.h"
#include "proto/check.h"
#include "proto/failure.h"

namespace afd::ops {
namespace {

Result<> check_size(const char* part, size_t have, size_t want) {
    if (have == want) return {};
    return invalid_argument("{} has {} elements; the shape asks for {}", with(part, have, want));
}

Result<> check_heads(const char* part,
                     const std::vector<PackedLinear>& heads,
                     const MlaShape& shape,
                     size_t outputs,
                     size_t depth) {
    AFD_TRY(check_size(part, heads.size(), shape.num_heads));
    for (const PackedLinear& head : heads) AFD_TRY(check_matrix(part, head, outputs, depth));
    return {};
}

}  // namespace

void pack_kv_b_proj(Rows<const Bf16> kv_b_proj, NumericClass numeric_class, MlaWeights& weights) {
    const MlaShape& s = weights.shape;
    const size_t rows_per_head = s.qk_nope_head_dim + s.v_head_dim;
    AFD_ASSERT(
        kv_b_proj.num_rows == s.num_heads * rows_per_head && kv_b_proj.num_cols == s.kv_lora_rank,
        "kv_b_proj [%zu, %zu]",
        kv_b_proj.num_rows,
        kv_b_proj.num_cols);
    weights.weight_uk.clear();
    weights.weight_uv.clear();
    for (size_t head = 0; head < s.num_heads; ++head) {
        const Rows<const Bf16> rows = kv_b_proj.slice(head * rows_per_head, rows_per_head);
        // Transposed: the query is multiplied by W_UK instead of every key by its transpose, which
        // is what "absorbed" means. Prefill takes this form as well, so that it has the bits of
        // decoding.
        weights.weight_uk.push_back(
            PackedLinear::pack_transposed(rows.slice(0, s.qk_nope_head_dim), numeric_class));
        weights.weight_uv.push_back(
            PackedLinear::pack(rows.slice(s.qk_nope_head_dim, s.v_head_dim), numeric_class));
    }
}

Result<> validate(const MlaWeights& weights) {
    const MlaShape& s = weights.shape;
    if (s.qk_rope_head_dim == 0 || s.qk_rope_head_dim % 2 != 0) {
        return invalid_argument("qk_rope_head_dim is {}; it must be even, at least 2",
                                with(s.qk_rope_head_dim));
    }
    const size_t query_depth = s.q_lora_rank == 0 ? s.hidden : s.q_lora_rank;
    if (s.q_lora_rank == 0) {
        // Refused and not ignored: a checkpoint that has it and says q_lora_rank 0 contradicts
        // itself.
        AFD_TRY(check_size("weight_dq", weights.weight_dq.num_outputs(), 0));
    } else {
        AFD_TRY(check_matrix("weight_dq", weights.weight_dq, s.q_lora_rank, s.hidden));
    }
    AFD_TRY(check_size("rmsnorm_gamma_cq", weights.rmsnorm_gamma_cq.size(), s.q_lora_rank));
    AFD_TRY(check_matrix("weight_uq_qr", weights.weight_uq_qr, s.query_columns(), query_depth));
    AFD_TRY(check_matrix("weight_dkv_kr", weights.weight_dkv_kr, s.kv_columns(), s.hidden));
    AFD_TRY(check_size("rmsnorm_gamma_ckv", weights.rmsnorm_gamma_ckv.size(), s.kv_lora_rank));
    AFD_TRY(check_heads("weight_uk", weights.weight_uk, s, s.kv_lora_rank, s.qk_nope_head_dim));
    AFD_TRY(check_heads("weight_uv", weights.weight_uv, s, s.v_head_dim, s.kv_lora_rank));
    if (s.q_lora_rank == 0 && weights.qc_qr_scale != 1.0f) {
        return invalid_argument(
            "qc_qr_scale is {:f}; without a low-rank query (q_lora_rank 0) it must be 1",
            with(weights.qc_qr_scale));
    }
    return {};
}

}  // namespace afd::ops
