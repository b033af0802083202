// SPDX-License-Identifier: Apache-2.0
#pragma once

// MlaPrologV3Request: what mla_prolog_v3 (mla_prolog_v3.h) is called with, and the record that says
// what of it is allowed.

#include <cstdint>
#include <string_view>

#include "ops/record/operator_spec.h"
#include "ops/tensor/tensor_view.h"

namespace afd::ops {

struct MlaPrologV3Request;
extern const RecordOf<MlaPrologV3Request> kMlaPrologV3Spec;

struct MlaPrologV3Request {
    float rmsnorm_epsilon_cq = 1e-5f;
    float rmsnorm_epsilon_ckv = 1e-5f;
    std::string_view cache_mode = "PA_BSND";
    bool query_norm_flag = false;
    int64_t weight_quant_mode = 0;
    int64_t kv_cache_quant_mode = 0;
    int64_t query_quant_mode = 0;
    int64_t ckvkr_repo_mode = 0;
    int64_t quant_scale_repo_mode = 0;
    int64_t tile_size = 128;
    float qc_qr_scale = 1.0f;
    float kc_scale = 1.0f;

    ConstTensorView token_x;
    // The four matrices, and further down dequant_scale_w_*; mla_prolog_v3 reads only their shapes,
    // the elements are in the packed form. Rank 2: row-major. Rank 4, not for weight_uk: FRACTAL_NZ
    // (ops/operators/mla_v3/fractal_nz.h).
    ConstTensorView weight_dq;  // Not given: no low-rank query (q_lora_rank null).
    ConstTensorView weight_uq_qr;
    ConstTensorView weight_uk;
    ConstTensorView weight_dkv_kr;
    ConstTensorView rmsnorm_gamma_cq;
    ConstTensorView rmsnorm_gamma_ckv;
    ConstTensorView rope_sin;
    ConstTensorView rope_cos;
    TensorView kv_cache;  // In place.
    TensorView kr_cache;  // In place.
    ConstTensorView cache_index;
    ConstTensorView dequant_scale_x;
    ConstTensorView dequant_scale_w_dq;
    ConstTensorView dequant_scale_w_uq_qr;
    ConstTensorView dequant_scale_w_dkv_kr;
    ConstTensorView quant_scale_ckv;
    ConstTensorView quant_scale_ckr;
    ConstTensorView smooth_scales_cq;
    ConstTensorView actual_seq_len;
    ConstTensorView k_nope_clip_alpha;

    TensorView query;
    TensorView query_rope;
    TensorView dequant_scale_q_nope;
    TensorView query_norm;
    TensorView dequant_scale_q_norm;
};

}  // namespace afd::ops
