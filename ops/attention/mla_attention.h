// SPDX-License-Identifier: Apache-2.0
#pragma once

// MlaAttention over the latent cache, absorbed form, one causal pass of an online softmax.
//
// For token t and head h, over the blocks of kAttentionBlock absolute positions up to positions[t]:
//   s = (query·ckv + query_rope·kr) · softmax_scale, fp32
//   m' = max(m, max s);  p = exp(s − m');  l = l·exp(m − m') + Σp (fp32, of the unrounded p)
//   o = o·exp(m − m'), then o += p →bf16 · ckv, positions ascending
// latent = (o / l) →bf16;  out = latent·Wuvᵀ per head →bf16.
// The output projection W_O is a `linear` of the caller, on out [T, N·V].
// The orders of the sums, with the products of ops/format/numeric_class.h:
//   portable, avx2, avx512
//                 A score has 16 partial sums, which run over the latent and then over the rotated
//                 part (element i of each goes to partial i mod 16), and are added by halves. o
//                 takes one position after the other.
//   avx512-bf16   A score is one chain over the pairs of elements of the latent and then of the
//                 rotated part; o goes on as one chain over the pairs of positions of the block.
//   amx           A score is summed in steps of 16 pairs of elements, over the latent and then over
//                 the rotated part, which begins a step of its own; to o are added steps of 16
//                 pairs of positions of the block.
// A last pair without a second member has a zero for it. Rows of a quantised cache are expanded to
// bf16 (ops/format/latent_cache.h), and everything else is the same. All orders are fixed per
// numeric class and independent of batch, chunk and threads, so decoding and chunked prefill give
// the same bits. Positions beyond positions[t] have no influence; where tokens go over a block
// together (attend_together() of head_attention.h), they may be read with it.
// The live path of MLA layers; ops/operators/mla_v3/mla_attention_v3.h is the operator that stands
// alone.

#include <cstddef>
#include <span>

#include "ops/attention/mla_prolog.h"
#include "ops/format/attention_batch.h"
#include "ops/format/latent_cache.h"
#include "ops/tensor/bf16.h"
#include "ops/tensor/parallel.h"
#include "ops/tensor/tensor_view.h"
#include "proto/status.h"

namespace afd::ops {

struct MlaAttentionRequest {
    const MlaWeights* weights = nullptr;  // shape, weight_uv and softmax_scale are used.
    Rows<const Bf16> query;               // [T, N·Hckv], from mla_prolog.
    Rows<const Bf16> query_rope;          // [T, N·Dr]
    AttentionBatch batch;                 // T tokens; cache_index is not used here.
    LatentCache cache;                    // Only read.
    Rows<Bf16> out;                       // [T, N·V], heads side by side.
};

size_t mla_attention_workspace_bytes(const MlaShape& shape,
                                     size_t num_tokens_max,
                                     unsigned num_threads);

// Errors: kInvalidArgument, before anything is written: a negative position, or a block of a table
// that lies outside the cache.
Result<> mla_attention(const MlaAttentionRequest& request,
                       std::span<std::byte> workspace,
                       Parallel& parallel);

}  // namespace afd::ops
