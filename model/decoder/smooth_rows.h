// SPDX-License-Identifier: Apache-2.0
#pragma once

// SmoothRows: the int8 rows of a two-phase batch where each depends on its expert's smooth scales.

#include "model/decoder/smooth_scales.h"
#include "ops/fused_moe/sent_rows.h"
#include "ops/two_phase/payload.h"

namespace afd::model {

class SmoothRows final : public ops::TwoPhaseRowWriter {
  public:
    // x [num_tokens, hidden]. All outlive the object.
    SmoothRows(ops::Rows<const ops::Bf16> x, uint32_t layer, const SmoothScales& smooth)
        : x_(x), layer_(layer), smooth_(smooth) {}

    void write(size_t token, size_t expert, std::byte* row) const override {
        ops::encode_sent_row(ops::RowDtype::kInt8,
                             x_.row(token),
                             x_.num_cols,
                             row,
                             smooth_.of(layer_, static_cast<uint32_t>(expert)));
    }

  private:
    ops::Rows<const ops::Bf16> x_;
    const uint32_t layer_;
    const SmoothScales& smooth_;
};

}  // namespace afd::model
