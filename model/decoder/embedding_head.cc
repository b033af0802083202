// SPDX-License-Identifier: Apache-2.0
#include "model/decoder/embedding_head.h"

#include <array>
#include <cstring>

#include "model/attention/residual_steps.h"
#include "model/checkpoint/tensor_names.h"
#include "model/checkpoint/unread_tensor.h"

namespace afd::model {

Result<EmbeddingHead> EmbeddingHead::load(const ModelFiles& files,
                                          ops::NumericClass numeric_class) {
    const ModelConfig& config = files.config();
    const std::array<uint64_t, 2> shape = {config.vocab_size, config.hidden};
    EmbeddingHead ends;
    ends.epsilon_ = config.rms_norm_eps;
    ends.hidden_ = config.hidden;
    AFD_ASSIGN(ends.embedding_, files.tensors().read_bf16(kEmbeddingTensor, shape));
    AFD_ASSIGN(ends.final_norm_, read_norm(files.tensors(), config, kFinalNorm));
    if (config.has_head_bias) {
        AFD_ASSIGN(ends.head_bias_,
                   files.tensors().read_bf16(kHeadBiasTensor, std::span(shape).first(1)));
    } else {
        AFD_TRY(refuse_unread(files.tensors(), kHeadBiasTensor, "lm_head_bias"));
    }
    std::vector<ops::Bf16> own;
    if (!config.tie_word_embeddings) {
        AFD_ASSIGN(own, files.tensors().read_bf16(kHeadTensor, shape));
    }
    // The head is packed even if it is the embedding: one is read by rows, the other multiplied.
    const std::vector<ops::Bf16>& head = config.tie_word_embeddings ? ends.embedding_ : own;
    ends.lm_head_ = ops::PackedLinear::pack(
        ops::make_rows(head.data(), config.vocab_size, config.hidden), numeric_class);
    return ends;
}

void EmbeddingHead::embed(std::span<const int32_t> tokens, const Residual& residual) const {
    AFD_ASSERT(residual.num_rows() == tokens.size(),
               "%zu tokens, %zu rows",
               tokens.size(),
               residual.num_rows());
    for (size_t i = 0; i < tokens.size(); ++i) {
        const auto token = static_cast<size_t>(tokens[i]);
        AFD_ASSERT(token < embedding_.size() / hidden_, "token %zu", token);
        const ops::Bf16* from = &embedding_[token * hidden_];
        if (!residual.is_fp32()) {
            std::memcpy(residual.bf16().row(i), from, hidden_ * sizeof(ops::Bf16));
            continue;
        }
        float* to = residual.fp32().row(i);
        for (size_t c = 0; c < hidden_; ++c) to[c] = ops::to_float(from[c]);
    }
}

void EmbeddingHead::head(const ConstResidual& residual,
                         ops::Rows<ops::Bf16> normal,
                         ops::Rows<float> logits,
                         ops::Parallel& parallel) const {
    normalise(residual, final_norm_, epsilon_, normal, parallel);
    ops::linear_f32(normal, lm_head_, logits, parallel);
    if (!head_bias_.empty()) ops::add_bias(head_bias_, logits, parallel);
}

}  // namespace afd::model
