// SPDX-License-Identifier: Apache-2.0
#pragma once

// ReferenceDecoder: the whole forward pass in plain loops over ops/reference: the specification
// that the fast path and the independent NumPy model of tests/golden are compared with.
//
// Not for serving: no cache, one sequence at a time, everything in memory unpacked. Models whose
// attention has a model/reference/reference_attention.h only. Part of afd::offline_model, which
// nothing that serves links.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "model/family/model_files.h"
#include "ops/reference/matrix.h"
#include "proto/status.h"

namespace afd::model {

class ReferenceDecoder {
  public:
    // Errors: those of TensorStore; kUnimplemented for another kind of attention.
    static Result<ReferenceDecoder> load(const ModelFiles& files);

    ReferenceDecoder(ReferenceDecoder&&) noexcept;
    ReferenceDecoder& operator=(ReferenceDecoder&&) noexcept;
    ~ReferenceDecoder();

    // Logits of every position, [tokens.size(), vocab_size]; row t predicts token t + 1.
    // With Rounding::kNone every intermediate stays exact: comparable with any exact
    // implementation. With kBf16 it has the rounding points of the served decoder.
    // Errors: kInvalidArgument for a token outside the vocabulary or a sequence longer than the
    // context.
    Result<std::vector<float>> logits(std::span<const int32_t> tokens,
                                      ops::reference::Rounding rounding) const;

  private:
    struct Impl;
    explicit ReferenceDecoder(std::unique_ptr<Impl> impl);

    std::unique_ptr<Impl> impl_;
};

}  // namespace afd::model
