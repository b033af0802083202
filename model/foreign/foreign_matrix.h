// SPDX-License-Identifier: Apache-2.0
#pragma once

// Reads matrices that another program has quantised (model/foreign/foreign_form.h). Those who
// want values call TensorStore::read_bf16(), which calls this.
//
// Messages name the tensor, and what can be done.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/foreign/foreign_form.h"
#include "model/foreign/foreign_parts.h"
#include "model/safetensors/storage_type.h"
#include "ops/tensor/bf16.h"
#include "proto/status.h"

namespace afd::model {

class TensorFiles;

// Whether the store holds "X.weight" in this form.
bool is_foreign(const TensorFiles& tensors, const ForeignForm& form, std::string_view weight);

// The "X.weight" that this tensor belongs to in this form: the one that has the values, alone.
// None of fused experts, where a tensor has many.
std::optional<std::string> foreign_weight_of(const TensorFiles& tensors,
                                             const ForeignForm& form,
                                             const std::string& tensor);

// All tensors that "X.weight" may have in this form.
std::vector<std::string> foreign_tensors(const ForeignForm& form, std::string_view weight);

// [N, K] of "X.weight". Errors: kDataLoss. REQUIRES: is_foreign().
Result<std::vector<uint64_t>> foreign_shape(const TensorFiles& tensors,
                                            const ForeignForm& form,
                                            std::string_view weight);

// Rows [first, first + count) of the matrix. REQUIRES: is_foreign(); first a multiple of 128.
// Errors: those of TensorStore::read_bf16; kDataLoss for a scale that is not finite.
Result<std::vector<ops::Bf16>> read_foreign_rows(const ForeignMatrix& matrix,
                                                 uint64_t first,
                                                 uint64_t count);

// What the scales of "X.weight" are stored as. REQUIRES: is_foreign() and form.is_int4().
std::optional<StorageType> foreign_scale_type(const TensorFiles& tensors,
                                              const ForeignForm& form,
                                              std::string_view weight);

}  // namespace afd::model
