// SPDX-License-Identifier: Apache-2.0
#pragma once

// MlaAttention on tensor views: absorbed causal attention over the cache that mla_prolog_v3 wrote,
// of any cache mode, unquantised or quantised.
//
//   s = (query·ckv + query_rope·kr) · dequant_scale_q_nope · softmax_scale;  p = softmax(s)
//   latent = Σ p·ckv →bf16;  o = latent·Wuvᵀ per head →bf16;  attention_out = o·Wo →bf16, or o
// Softmax, blocks of positions and rounding points are those of ops/attention/mla_attention.h; over
// an unquantised cache so are the bits. A quantised cache is dequantised to fp32 row by row:
//   per tensor   ckv = int8 / quant_scale_ckv, kr = bf16 / quant_scale_ckv (mla_prolog_v3 has
//                multiplied query_rope with it)
//   per channel  ckv = int8 / quant_scale_ckv[j], kr = int8 / quant_scale_ckr[j]
//   per tile     ckv = int8 · the tile's scale, kr = bf16
// and its scores and weighted sums run in fp32, multiply then add, in every numeric class: 16
// partial sums, element i of the latent, then of the rotated part, to partial i mod 16, added by
// halves; o += p·ckv with positions ascending.
// This is the operator that stands alone; the daemon's decoder has ops/attention/mla_attention.h.
// Names, shapes and constraints stand in kMlaAttentionV3Spec.
// Source: docs/specification.md, section 11.

#include <cstddef>
#include <span>
#include <vector>

#include "ops/attention/mla_prolog.h"
#include "ops/linear/packed_linear.h"
#include "ops/operators/mla_v3/mla_attention_v3_request.h"
#include "ops/tensor/parallel.h"
#include "proto/status.h"

namespace afd::ops {

// The request with attention_out as a contiguous view without data. Looks at attributes and inputs
// only. Errors: those of mla_attention_v3.
Result<MlaAttentionV3Request> with_output_shapes(const MlaAttentionV3Request& request);

// The two matrices in the layout of one numeric class, packed once at load.
struct MlaAttentionV3Weights {
    std::vector<PackedLinear> weight_uv;  // N matrices [V, Hckv]
    PackedLinear weight_o;                // [He, N·V], or empty.
};

// Packs the matrices of a request. Errors: those of mla_attention_v3.
Result<MlaAttentionV3Weights> pack_mla_attention_v3(const MlaAttentionV3Request& request,
                                                    NumericClass numeric_class);

// Bytes for up to `num_tokens_max` tokens of any request with this shape; of `shape` the sizes
// kv_lora_rank, num_heads, qk_rope_head_dim and v_head_dim are used.
size_t mla_attention_v3_workspace_bytes(const MlaShape& shape,
                                        size_t num_tokens_max,
                                        unsigned num_threads);

// A token attends to positions 0 ... positions[t] of its sequence; later ones are never read.
// Decoding and chunked prefill give the same bits.
// Errors: kInvalidArgument, naming parameter, value and what is allowed, before anything is
// written: what the record refuses, a position or block outside the cache.
// REQUIRES: `weights` is of matrices with these shapes.
Result<> mla_attention_v3(const MlaAttentionV3Request& request,
                          const MlaAttentionV3Weights& weights,
                          std::span<std::byte> workspace,
                          Parallel& parallel);

}  // namespace afd::ops
