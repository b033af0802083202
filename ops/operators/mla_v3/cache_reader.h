// SPDX-License-Identifier: Apache-2.0
#pragma once

// CacheReader: rows of an MLA cache as mla_attention_v3 computes with them, whatever their format.
// Internal to ops/.

#include <cstddef>

#include "ops/operators/mla_v3/mla_attention_v3_plan.h"
#include "ops/operators/mla_v3/mla_attention_v3_request.h"

namespace afd::ops {

class CacheReader {
  public:
    CacheReader(const MlaAttentionV3Request& request, const MlaAttentionV3Plan& plan);

    // Copies an unquantised row.
    void read(size_t row, Bf16* ckv, Bf16* kr) const;

    // Dequantises a row to fp32; `bytes` is scratch of row_bytes_max().
    void read(size_t row, float* ckv, float* kr, std::byte* bytes) const;

    size_t row_bytes_max() const;

  private:
    const MlaAttentionV3Request& request_;
    const MlaAttentionV3Plan& plan_;
};

}  // namespace afd::ops
