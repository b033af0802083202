// SPDX-License-Identifier: Apache-2.0
#pragma once

// TensorStore: the tensors of a model directory as weights, in whatever form they are stored. Const
// and thread-safe after open() and set_form().

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/foreign/foreign_form.h"
#include "model/foreign/foreign_matrices.h"
#include "model/foreign/fp8_blocks.h"
#include "model/safetensors/tensor_files.h"
#include "ops/tensor/bf16.h"
#include "proto/status.h"

namespace afd::model {

// How models of text and images, whose text model alone is served, begin the names of its tensors:
// in releases, and in files of newer libraries.
inline constexpr std::array kWrappedNames = {
    NamePrefix{.stored = "language_model.", .plain = "", .kept = "lm_head."},
    NamePrefix{.stored = "model.language_model.", .plain = "model.", .kept = "lm_head."},
};

class TensorStore : public TensorFiles {
  public:
    TensorStore() = default;
    // As TensorFiles::open(). Where the text model is a part of another (kWrappedNames), its
    // tensors have their usual names, and the others are not there.
    static Result<TensorStore> open(const std::string& directory);

    // How another program has quantised matrices of this model, as its configuration says. What is
    // read as bf16 may be in this form from now on.
    void set_form(const ForeignForm& form) { form_ = form; }
    const ForeignForm& form() const { return form_; }
    ForeignMatrices foreign() const { return {*this, form_}; }

    // Whether the weights have it: as a tensor, or "X.weight" in the form.
    bool holds(std::string_view name) const;

    // The tensor's elements, row-major. BF16 as stored; F32 and F16 rounded to bf16, half to even;
    // a matrix in F8_E4M3 as Fp8Blocks::to_bf16() of read_fp8_blocks(); "X.weight" in the form as
    // it says (foreign_matrices.h). Errors: kNotFound, kInvalidArgument (another shape; both are
    // named), kUnimplemented (another type), and those of SafetensorsFile::read.
    Result<std::vector<ops::Bf16>> read_bf16(std::string_view name,
                                             std::span<const uint64_t> shape) const;

    // The same for `count` entries of the leading dimension, from `first`: an expert of a fused
    // tensor. Not of F8_E4M3. REQUIRES: first + count <= shape[0].
    Result<std::vector<ops::Bf16>> read_bf16_slice(std::string_view name,
                                                   std::span<const uint64_t> shape,
                                                   uint64_t first,
                                                   uint64_t count) const;

    // Rows [first, first + count) of the tensor as read_bf16() reads it, where its leading
    // dimensions are one: [count, shape.back()]. Of quantised matrices those from a multiple of 128
    // on are cheapest. REQUIRES: as many rows; a shape of two dimensions or more.
    Result<std::vector<ops::Bf16>> read_bf16_rows(std::string_view name,
                                                  std::span<const uint64_t> shape,
                                                  uint64_t first,
                                                  uint64_t count) const;

    // A matrix in F8_E4M3 with its scales. Errors: as read_bf16, kUnimplemented for scales that are
    // missing or of another shape (says what to do), and those of Fp8Blocks::check.
    Result<Fp8Blocks> read_fp8_blocks(std::string_view name,
                                      uint64_t num_outputs,
                                      uint64_t depth) const;

  private:
    explicit TensorStore(TensorFiles files) : TensorFiles(std::move(files)) {}

    // Values [offset, offset + count) of a tensor of kFloatTypes, rounded to bf16.
    Result<std::vector<ops::Bf16>> read_rounded(const TensorInfo& tensor,
                                                uint64_t offset,
                                                uint64_t count) const;
    // REQUIRES: first is a multiple of 128; the matrix is in F8_E4M3 or in the form.
    Result<std::vector<ops::Bf16>> read_quantised_rows(std::string_view name,
                                                       std::span<const uint64_t> shape,
                                                       uint64_t first,
                                                       uint64_t count) const;
    Result<Fp8Blocks> read_fp8_rows(std::string_view name,
                                    std::span<const uint64_t> shape,
                                    uint64_t first,
                                    uint64_t count) const;

    // `weight`_scale_inv.
    Result<std::vector<float>> read_block_scales(const std::string& weight,
                                                 std::span<const uint64_t> shape) const;

    ForeignForm form_;
};

}  // namespace afd::model
