// SPDX-License-Identifier: Apache-2.0
#pragma once

// MlaPrologV3, the whole operator on tensor views: from normalised hidden rows to absorbed queries,
// and the latent and rotated key into a cache of any mode, unquantised or quantised.
//
//   cq = x·Wdq;  n = rms(cq)·γ·qc_qr_scale;  qq = n·Wuq_qr as [N, D + Dr]
//   query = qq_D·Wuk per head;  query_rope = rope(qq_R)
//   kv = x·Wdkv_kr as [Hckv | Dr];  ckv = rms(kv)·γ·kc_scale;  kr = rope(kv_R)
// The scenario, three digits (weight_quant_mode, kv_cache_quant_mode, query_quant_mode), says what
// is rounded and quantised where: 000; 100, 120, 130; 200, 211, 230, 231. Names, shapes, dtypes and
// constraints stand in kMlaPrologV3Spec. Source: seed mla_prolog_v3, specification, section 11.
// This is the operator that stands alone; the daemon's decoder has ops/attention/mla_prolog.h,
// unquantised and over its own cache. Scenario 000 gives the same bits.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "ops/attention/mla_prolog.h"
#include "ops/linear/linear.h"
#include "ops/record/operator_spec.h"
#include "ops/tensor/tensor_view.h"
#include "proto/status.h"

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

// The request with its outputs as contiguous views without data; one that is off has rank 0.
// Looks at attributes and inputs only. Errors: those of mla_prolog_v3.
Result<MlaPrologV3Request> with_output_shapes(const MlaPrologV3Request& request);

// The four matrices in the layout of one numeric class, packed once at load.
struct MlaPrologV3Weights {
    MlaShape shape;  // v_head_dim is not used.
    int64_t weight_quant_mode = 0;
    // int8 with their dequant_scale_w_*: weight_uq_qr with mode 1, all three with mode 2; else
    // bf16.
    PackedLinear weight_dq;
    PackedLinear weight_uq_qr;
    PackedLinear weight_dkv_kr;
    std::vector<PackedLinear> weight_uk;  // N matrices [Hckv, D]
};

// Packs the matrices of a request and the scales of those in int8. Errors: those of mla_prolog_v3.
Result<MlaPrologV3Weights> pack_mla_prolog_v3(const MlaPrologV3Request& request,
                                              NumericClass numeric_class);

// Bytes for up to `num_tokens_max` tokens of any request with this shape.
size_t mla_prolog_v3_workspace_bytes(const MlaShape& shape, size_t num_tokens_max);

// A row's bits depend on the row, the weights and their numeric class only. Of equal cache indices
// the last token wins; index -1 writes nothing.
// Errors: kInvalidArgument, naming parameter, value and what is allowed, before anything is
// written: what the record refuses, a scenario outside the list, a tensor that the scenario needs
// and that is not given (or the reverse), a cache index out of range, prefix sums that fall.
// REQUIRES: `weights` is of matrices with these shapes.
Result<> mla_prolog_v3(const MlaPrologV3Request& request,
                       const MlaPrologV3Weights& weights,
                       std::span<std::byte> workspace,
                       Parallel& parallel);

}  // namespace afd::ops
