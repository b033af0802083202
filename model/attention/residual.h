// SPDX-License-Identifier: Apache-2.0
#pragma once

// Residual: rows of the residual stream, [num_rows, hidden], in bf16 or in fp32. Which it is the
// model's configuration says (ModelConfig::residual), once for the whole decoder; what lies between
// reads of it and additions to it is the same for both.

#include <cstddef>

#include "ops/tensor/bf16.h"
#include "ops/tensor/tensor_view.h"
#include "proto/check.h"

namespace afd::model {

class Residual {
  public:
    Residual(ops::Rows<ops::Bf16> rows) : bf16_(rows) {}  // Implicit, as the next: rows pass as
    Residual(ops::Rows<float> rows) : fp32_(rows) {}      // they are.

    bool is_fp32() const { return fp32_.data != nullptr; }
    size_t num_rows() const { return is_fp32() ? fp32_.num_rows : bf16_.num_rows; }
    size_t num_cols() const { return is_fp32() ? fp32_.num_cols : bf16_.num_cols; }

    // Each REQUIRES that type.
    ops::Rows<ops::Bf16> bf16() const {
        AFD_DASSERT(!is_fp32(), "%zu rows in fp32", num_rows());
        return bf16_;
    }
    ops::Rows<float> fp32() const {
        AFD_DASSERT(is_fp32(), "%zu rows in bf16", num_rows());
        return fp32_;
    }

    // Rows [first, first + count).
    Residual slice(size_t first, size_t count) const {
        if (is_fp32()) return fp32_.slice(first, count);
        return bf16_.slice(first, count);
    }

  private:
    ops::Rows<ops::Bf16> bf16_{};
    ops::Rows<float> fp32_{};
};

// The same, only to be read.
class ConstResidual {
  public:
    ConstResidual(ops::Rows<const ops::Bf16> rows) : bf16_(rows) {}  // Implicit, as the others.
    ConstResidual(ops::Rows<ops::Bf16> rows) : bf16_(rows) {}
    ConstResidual(const Residual& residual) {
        if (residual.is_fp32()) {
            fp32_ = residual.fp32();
        } else {
            bf16_ = residual.bf16();
        }
    }

    bool is_fp32() const { return fp32_.data != nullptr; }
    size_t num_rows() const { return is_fp32() ? fp32_.num_rows : bf16_.num_rows; }
    size_t num_cols() const { return is_fp32() ? fp32_.num_cols : bf16_.num_cols; }

    // Each REQUIRES that type.
    ops::Rows<const ops::Bf16> bf16() const {
        AFD_DASSERT(!is_fp32(), "%zu rows in fp32", num_rows());
        return bf16_;
    }
    ops::Rows<const float> fp32() const {
        AFD_DASSERT(is_fp32(), "%zu rows in bf16", num_rows());
        return fp32_;
    }

  private:
    ops::Rows<const ops::Bf16> bf16_{};
    ops::Rows<const float> fp32_{};
};

}  // namespace afd::model
