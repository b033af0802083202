// SPDX-License-Identifier: Apache-2.0
#pragma once

// Reference MLA for one sequence: prolog and absorbed attention over the latent cache.
//
// Weights are the checkpoint's own matrices, [out, in] row-major. The cache is one Matrix row per
// position; paging is no concern here.

#include <cstdint>
#include <span>

#include "ops/attention/mla_prolog.h"
#include "ops/attention/rope.h"
#include "ops/format/kv_dtype.h"
#include "ops/reference/linear.h"
#include "ops/reference/matrix.h"

namespace afd::ops::reference {

struct MlaMatrices {
    MlaShape shape;
    LinearWeight weight_dq;         // [Hcq, He] (q_a_proj); empty without a low-rank query.
    LinearWeight weight_uq_qr;      // [N·(D + Dr), Hcq or He] (q_b_proj or q_proj)
    LinearWeight weight_dkv_kr;     // [Hckv + Dr, He] (kv_a_proj_with_mqa)
    Rows<const Bf16> weight_uk_uv;  // [N·(D + V), Hckv] (kv_b_proj)
    std::span<const Bf16> rmsnorm_gamma_cq;   // [Hcq]
    std::span<const Bf16> rmsnorm_gamma_ckv;  // [Hckv]
    double rmsnorm_epsilon_cq = 1e-5;
    double rmsnorm_epsilon_ckv = 1e-5;
    double qc_qr_scale = 1;
    double kc_scale = 1;
    double softmax_scale = 1;
    // With kBf16 the ckv and kr of mla_prolog() are what a reader of such a cache gets; with kNone
    // as bf16.
    KvDtype kv_dtype = KvDtype::kBf16;
    std::span<const float> quant_scale_ckv = {};  // int8_channel: [Hckv]
    std::span<const float> quant_scale_ckr = {};  // [Dr]
};

struct MlaPrologOutput {
    Matrix query;       // [T, N·Hckv]
    Matrix query_rope;  // [T, N·Dr]
    Matrix query_norm;  // [T, Hcq], or no rows.
    Matrix ckv;         // [T, Hckv]: cache rows of the T tokens.
    Matrix kr;          // [T, Dr]
};

// Shapes: x [T, He], positions [T].
MlaPrologOutput mla_prolog(const MlaMatrices& weights,
                           const Matrix& x,
                           std::span<const int32_t> positions,
                           const RopeTable& rope,
                           Rounding rounding);

// Attends token t to cache rows 0 ... positions[t]; ckv [S, Hckv], kr [S, Dr] with S > max
// position. Returns [T, N·V], before W_O. With kBf16 the online softmax runs over blocks of
// kAttentionBlock positions as in ops/attention/mla_attention.h, because its running maximum
// decides how P rounds.
Matrix mla_attention(const MlaMatrices& weights,
                     const Matrix& query,
                     const Matrix& query_rope,
                     const Matrix& ckv,
                     const Matrix& kr,
                     std::span<const int32_t> positions,
                     Rounding rounding);

}  // namespace afd::ops::reference
