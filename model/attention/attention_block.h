// SPDX-License-Identifier: Apache-2.0
#pragma once

// AttentionBlock: the attention sublayers of all layers of a model, with the norm before them and
// the residual add behind them. What stands between attention and the experts (norm, router) is the
// same for all kinds: model/decoder/attention_half.h.
//
// The contract of every implementation (promise 1): rows are tokens of any mix of sequences, and a
// row's bits depend on its token and the tokens before it in its sequence, never on the other rows,
// on the cut of a sequence into calls, on the blocks it got or on the number of threads. So a
// prompt in chunks, the same prompt at once and one token at a time give the same bits.
// Const and thread-safe; a workspace serves one call at a time. attention() allocates nothing.

#include <cstddef>
#include <cstdint>
#include <span>

#include "model/attention/kv_cache.h"
#include "model/attention/residual.h"
#include "ops/format/attention_batch.h"
#include "ops/tensor/bf16.h"
#include "ops/tensor/parallel.h"
#include "ops/tensor/tensor_view.h"
#include "proto/check.h"
#include "proto/status.h"

namespace afd::model {

class AttentionBlock {
  public:
    virtual ~AttentionBlock() = default;

    // Scratch of one attention() of up to rows_max rows on up to num_threads threads.
    virtual size_t workspace_bytes(size_t rows_max, unsigned num_threads) const = 0;

    // Multiply-adds of one row and one position that it attends to, in one layer: what makes long
    // contexts take long.
    virtual size_t products_per_position() const = 0;

    // residual += W_O·attention(norm(residual)), and the batch's keys enter the layer's cache.
    // Shapes: residual [batch.num_tokens, hidden].
    // REQUIRES: positions below the context length; the cache slots of all earlier positions of
    // each sequence are written, by an earlier call or this one; a workspace of workspace_bytes()
    // for these rows, aligned to ops::kWorkspaceAlignment.
    virtual void attention(uint32_t layer,
                           const ops::AttentionBatch& batch,
                           const KvLayer& cache,
                           const Residual& residual,
                           std::span<std::byte> workspace,
                           ops::Parallel& parallel) const = 0;

  protected:
    // Of an operator: a block makes the requests itself, so it is a bug of the block if one is
    // refused.
    static void assert_done(const Result<>& result) {
        AFD_ASSERT(result.ok(), "%s", result.error().message.c_str());
    }
};

}  // namespace afd::model
