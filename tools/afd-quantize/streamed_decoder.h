// SPDX-License-Identifier: Apache-2.0
#pragma once

// StreamedDecoder: a text through a model a layer at a time, by the kernels that serve it and with
// the bits that model/decoder/local_decoder.h gives. Of the weights it holds one layer's attention,
// or as many experts as fit, or a part of the head; of the text some rows, the rest is in files.
// So memory does not grow with the model, nor with the text but for the routing, 8 bytes for each
// token and expert chosen.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "model/decoder/attention_half.h"
#include "model/family/model_files.h"
#include "ops/format/numeric_class.h"
#include "ops/tensor/parallel.h"
#include "proto/status.h"
#include "tools/afd-quantize/row_file.h"
#include "tools/afd-quantize/smooth_columns.h"

namespace afd::tools {

struct StreamedText {
    std::vector<int32_t> tokens;  // Below vocab_size.
    size_t window = 0;            // The text is cut into sequences of this many tokens.

    // Tokens of the window that begins at `first`.
    size_t window_tokens(size_t first) const { return std::min(window, tokens.size() - first); }
};

struct StreamedLimits {
    // Packed experts at a time, at least one; while they are loaded it is twice as much.
    uint64_t expert_bytes = uint64_t{320} << 20;
    uint64_t head_bytes = uint64_t{64} << 20;
    // Rows of experts at a time.
    uint64_t row_bytes = uint64_t{32} << 20;
};

class StreamedDecoder {
  public:
    // Intermediate rows go into `scratch`. REQUIRES: all arguments outlive this; a window of 1 to
    // context_length.
    static Result<StreamedDecoder> create(const model::ModelFiles& files,
                                          const StreamedText& text,
                                          const std::string& scratch,
                                          ops::Parallel& parallel,
                                          const StreamedLimits& limits = {});

    // Sees a layer's cache after each window's `num_tokens` tokens have written it, slot 0 first.
    using OnCache =
        std::function<void(uint32_t layer, const model::KvLayer& cache, size_t num_tokens)>;
    void observe_cache(OnCache observer) { on_cache_ = std::move(observer); }

    // -log of the probability that the model gives to each token, 0 for the first of each window.
    // `progress` is called with the share done. `ranges`, if given, become those of the text.
    // Errors: of reading weights, of the files, kInternal when the router meets a NaN or a logit
    // is not finite.
    Result<std::vector<double>> surprises(const std::function<void(double)>& progress,
                                          ChannelRanges* ranges);

  private:
    StreamedDecoder(const model::ModelFiles& files,
                    const StreamedText& text,
                    ops::Parallel& parallel,
                    const StreamedLimits& limits,
                    RowFile residual,
                    RowFile input,
                    RowFile results);

    Result<> embed();
    Result<> attention(uint32_t layer, std::vector<float>* ranges);
    Result<> attention_window(uint32_t layer,
                              const model::AttentionHalf& half,
                              const model::KvCache& cache,
                              size_t first,
                              model::AttentionWorkspace& workspace);
    // The logical expert of a token's slot; -1: none.
    int32_t expert_at(size_t token, size_t slot) const;
    Result<> experts(uint32_t layer);
    Result<> expert_group(uint32_t layer, uint32_t first, uint32_t last);
    Result<> combine(uint32_t layer);
    Result<> head(std::vector<double>& surprises);
    size_t tokens_at_once() const;

    const model::ModelFiles* files_;
    const model::ModelConfig& config_;
    const StreamedText* text_;
    ops::Parallel* parallel_;
    StreamedLimits limits_;
    OnCache on_cache_;
    ops::NumericClass numeric_class_;
    RowFile residual_;  // A row a token.
    RowFile input_;     // The same: what goes into the experts.
    RowFile results_;   // num_slots_ rows a token.
    // Of the layer at work.
    size_t num_slots_ = 0;
    std::vector<int32_t> topk_ids_;    // [tokens, top_k]
    std::vector<float> topk_weights_;  // [tokens, top_k]
};

}  // namespace afd::tools
