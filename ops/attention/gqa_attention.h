// SPDX-License-Identifier: Apache-2.0
#pragma once

// GqaAttention: the online softmax of grouped heads over their paged cache, causal.
//
// For token t and head h with its group's keys and values, over the blocks of kAttentionBlock
// absolute positions up to positions[t], with a window from positions[t] - window + 1 on:
//   s = (query·key) · softmax_scale, fp32
//   m' = max(m, max s);  p = exp(s − m');  l = l·exp(m − m') + Σp (fp32, of the unrounded p)
//   o = o·exp(m − m'), then o += p →bf16 · value, positions ascending
// begun with m = -inf, l = 0, or where the head has a sink with m = sink, l = 1; o = 0.
// out = (o / l) →bf16. The output projection is a `linear` of the caller.
// The orders of sums are those of ops/attention/mla_attention.h without a rotated part, and as
// there independent of batch, chunk and threads, so decoding and chunked prefill give the same
// bits. Positions beyond positions[t], or before the window, have no influence (of quantised keys
// in pairs, a whole block is expanded).

#include <cstddef>
#include <span>

#include "ops/format/attention_batch.h"
#include "ops/format/gqa_cache.h"
#include "ops/format/numeric_class.h"
#include "ops/tensor/bf16.h"
#include "ops/tensor/parallel.h"
#include "ops/tensor/tensor_view.h"
#include "proto/status.h"

namespace afd::ops {

struct GqaAttentionRequest {
    GqaShape shape;
    NumericClass numeric_class = NumericClass::kPortable;
    float softmax_scale = 1.0f;
    size_t window = 0;                  // Positions that a token sees, its own included; 0: all.
    std::span<const float> sinks = {};  // [num_heads]; empty: none.
    Rows<const Bf16> query;             // [T, query_columns], from gqa_prolog.
    AttentionBatch batch;               // T tokens; cache_index is not used here.
    GqaCache cache;                     // Only read.
    Rows<Bf16> out;                     // [T, query_columns], heads side by side.
};

// The order of a cache's keys in which the class is fastest: pairs where it reads both and has
// enough heads in a group, or so few that it reads them as they are quantised.
KeyOrder best_key_order(NumericClass numeric_class, const GqaShape& shape, KvDtype dtype);

size_t gqa_attention_workspace_bytes(const GqaShape& shape, unsigned num_threads);

// Errors: kInvalidArgument, before anything is written: a negative position, or a block of a table
// that lies outside the cache.
Result<> gqa_attention(const GqaAttentionRequest& request,
                       std::span<std::byte> workspace,
                       Parallel& parallel);

}  // namespace afd::ops
