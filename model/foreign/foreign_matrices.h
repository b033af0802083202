// SPDX-License-Identifier: Apache-2.0
#pragma once

// ForeignMatrices: the matrices of a store that another program has quantised
// (model/foreign/foreign_form.h): which they are, where their parts lie, and their values. Those
// who want values alone call TensorStore::read_bf16(), which asks here. Who keeps int4 or int8 as
// it is: foreign_int4.h, foreign_int8.h.
//
// A matrix is called "X.weight", whatever its tensors are called. Messages name the tensor, and
// what can be done.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/foreign/foreign_form.h"
#include "model/safetensors/storage_type.h"
#include "ops/tensor/bf16.h"
#include "proto/status.h"

namespace afd::model {

class TensorFiles;

class ForeignMatrices {
  public:
    // REQUIRES: both outlive it.
    ForeignMatrices(const TensorFiles& tensors, const ForeignForm& form)
        : tensors_(tensors), form_(form) {}

    // Whether the store holds "X.weight" in the form.
    bool has(std::string_view weight) const;

    // The "X.weight" that this tensor belongs to in the form: the one that has the values, alone.
    // None of fused experts, where a tensor has many.
    std::optional<std::string> weight_of(const std::string& tensor) const;

    // All tensors that "X.weight" may have in the form.
    std::vector<std::string> tensors_of(std::string_view weight) const;

    // [N, K] of "X.weight", neither 0. Errors: kDataLoss. REQUIRES: has().
    Result<std::vector<uint64_t>> shape_of(std::string_view weight) const;

    // What the scales of "X.weight" are stored as. REQUIRES: has(), and the form is_int4().
    std::optional<StorageType> scale_type_of(std::string_view weight) const;

    // Rows [first, first + count) of "X.weight", which has this shape. REQUIRES: has(); first a
    // multiple of 128. Errors: those of TensorStore::read_bf16; kDataLoss for a scale that is not
    // finite.
    Result<std::vector<ops::Bf16>> read_rows(std::string_view weight,
                                             std::span<const uint64_t> shape,
                                             uint64_t first,
                                             uint64_t count) const;

  private:
    const TensorFiles& tensors_;
    const ForeignForm& form_;
};

}  // namespace afd::model
