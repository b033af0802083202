// SPDX-License-Identifier: Apache-2.0
#pragma once

// ResidualRows: memory for some rows of the residual stream, in the type that the model keeps them
// in (ModelConfig::residual).

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "model/attention/residual.h"
#include "model/checkpoint/residual_type.h"
#include "ops/tensor/bf16.h"
#include "ops/tensor/tensor_view.h"

namespace afd::tools {

class ResidualRows {
  public:
    ResidualRows(model::ResidualType type, size_t num_rows, size_t hidden)
        : hidden_(hidden),
          bf16_(type == model::ResidualType::kBf16 ? num_rows * hidden : 0),
          fp32_(type == model::ResidualType::kFp32 ? num_rows * hidden : 0) {}

    // The bytes of a row.
    static size_t row_bytes(model::ResidualType type, size_t hidden) {
        return hidden * (type == model::ResidualType::kFp32 ? sizeof(float) : sizeof(ops::Bf16));
    }

    // The first rows, as the model takes them and as bytes.
    model::Residual rows(size_t count) {
        if (fp32_.empty()) return ops::make_rows(bf16_.data(), count, hidden_);
        return ops::make_rows(fp32_.data(), count, hidden_);
    }
    std::span<std::byte> bytes(size_t count) {
        if (fp32_.empty()) return std::as_writable_bytes(std::span(bf16_).first(count * hidden_));
        return std::as_writable_bytes(std::span(fp32_).first(count * hidden_));
    }

    // The first row becomes an embedding.
    void set(std::span<const ops::Bf16> embedding) {
        if (fp32_.empty()) {
            std::ranges::copy(embedding, bf16_.begin());
        } else {
            std::ranges::transform(
                embedding, fp32_.begin(), [](ops::Bf16 value) { return ops::to_float(value); });
        }
    }

  private:
    size_t hidden_;
    std::vector<ops::Bf16> bf16_;  // One of the two is empty.
    std::vector<float> fp32_;
};

}  // namespace afd::tools
