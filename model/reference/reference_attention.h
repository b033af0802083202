// SPDX-License-Identifier: Apache-2.0
#pragma once

// ReferenceAttention: the attention sublayers of all layers in plain loops over ops/reference, with
// the norm before them; one implementation for each kind of attention that is served.

#include <cstdint>
#include <memory>

#include "model/checkpoint/config.h"
#include "model/checkpoint/norm_tensors.h"
#include "model/checkpoint/stored_matrix.h"
#include "model/checkpoint/tensor_store.h"
#include "ops/reference/linear.h"
#include "ops/reference/matrix.h"
#include "proto/status.h"

namespace afd::model {

class ReferenceAttention {
  public:
    virtual ~ReferenceAttention() = default;

    // W_O·attention(norm(residual)) of a whole sequence, without a cache: nothing here can go wrong
    // the way a cache can. Shapes: residual and result [T, hidden]; row t is position t.
    virtual ops::reference::Matrix attention(uint32_t layer,
                                             const ops::reference::Matrix& residual,
                                             ops::reference::Rounding rounding) const = 0;
};

// Errors: those of TensorStore; kUnimplemented for a kind of attention that has none.
Result<std::unique_ptr<ReferenceAttention>> load_reference_attention(const ModelConfig& config,
                                                                     const TensorStore& tensors);

// The norm of the residual stream: RMSNorm rounded twice, or, where that is fp32, once; LayerNorm
// once.
ops::reference::Matrix residual_norm(const ModelConfig& config,
                                     const ops::reference::Matrix& residual,
                                     const NormView& norm,
                                     ops::reference::Rounding rounding);

// In int4 for products with int8 rows (ops/format/int4_rows.h). REQUIRES: not mxfp4; the matrix
// outlives the result.
ops::reference::LinearWeight linear_weight(const StoredMatrix& matrix);

}  // namespace afd::model
