// SPDX-License-Identifier: Apache-2.0
#pragma once

// LocalDecoder: one sequence through the fast operators in one process: attention block, fused MoE
// in its local composition, head. What tools and tests use; the daemon has its own loop over the
// same parts, with micro-batches of many sequences.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "model/family/model_files.h"
#include "ops/format/numeric_class.h"
#include "ops/tensor/parallel.h"
#include "ops/tensor/tensor_view.h"
#include "proto/status.h"

namespace afd::model {

class LocalDecoder {
  public:
    // Loads all weights and reserves scratch for chunks of up to chunk_max tokens and a cache for
    // num_tokens_max. Errors: those of TensorStore, kResourceExhausted.
    static Result<LocalDecoder> load(const ModelFiles& files,
                                     ops::NumericClass numeric_class,
                                     uint32_t chunk_max,
                                     uint32_t num_tokens_max,
                                     ops::Parallel& parallel);

    LocalDecoder(LocalDecoder&&) noexcept;
    LocalDecoder& operator=(LocalDecoder&&) noexcept;
    ~LocalDecoder();

    // Sees the rows that go into the MLPs of a layer; they live for the call only.
    using OnFfnInput = std::function<void(uint32_t layer, ops::Rows<const ops::Bf16> x)>;
    void observe_ffn(OnFfnInput observer);

    // Forgets the sequence.
    void reset();

    // The next tokens of the sequence, at most chunk_max; logits of each,
    // [tokens.size(), vocab_size]. The bits do not depend on how a sequence is cut into calls.
    // `routing`, if it is given: the experts that every layer's router chose,
    // [tokens.size(), num_layers, top_k]; in a dense layer 0 and then -1.
    // Errors: kInvalidArgument for a token outside the vocabulary, too many tokens in the call, or
    // a sequence beyond num_tokens_max; kInternal when the router meets a NaN.
    Result<> append(std::span<const int32_t> tokens,
                    ops::Rows<float> logits,
                    int32_t* routing = nullptr);

  private:
    struct Impl;
    explicit LocalDecoder(std::unique_ptr<Impl> impl);

    std::unique_ptr<Impl> impl_;
};

}  // namespace afd::model
