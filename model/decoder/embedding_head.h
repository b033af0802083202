// SPDX-License-Identifier: Apache-2.0
#pragma once

// EmbeddingHead: the two ends of the decoder. Token ids become bf16 rows of the residual stream;
// its last state becomes, through the final norm and lm_head (or the embedding, where tied), fp32
// logits. Const and thread-safe.

#include <cstdint>
#include <span>
#include <vector>

#include "model/attention/residual.h"
#include "model/checkpoint/norm_tensors.h"
#include "model/family/model_files.h"
#include "ops/format/numeric_class.h"
#include "ops/linear/linear.h"
#include "ops/tensor/bf16.h"
#include "ops/tensor/parallel.h"
#include "ops/tensor/tensor_view.h"
#include "proto/status.h"

namespace afd::model {

class EmbeddingHead {
  public:
    // Errors: those of TensorStore.
    static Result<EmbeddingHead> load(const ModelFiles& files, ops::NumericClass numeric_class);

    // residual[i] = row tokens[i] of the embedding. Shapes: residual [tokens.size(), hidden].
    // REQUIRES: tokens below vocab_size.
    void embed(std::span<const int32_t> tokens, const Residual& residual) const;

    // Shapes: residual, normal [num_rows, hidden]; logits [num_rows, vocab_size] fp32. `normal` is
    // scratch, and may be a residual in bf16 itself.
    void head(const ConstResidual& residual,
              ops::Rows<ops::Bf16> normal,
              ops::Rows<float> logits,
              ops::Parallel& parallel) const;

  private:
    EmbeddingHead() = default;

    double epsilon_ = 0;
    size_t hidden_ = 0;
    std::vector<ops::Bf16> embedding_;  // [vocab_size, hidden]
    NormTensors final_norm_;
    ops::PackedLinear lm_head_;
    std::vector<ops::Bf16> head_bias_;  // [vocab_size], or empty.
};

}  // namespace afd::model
