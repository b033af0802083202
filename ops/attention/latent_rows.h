// SPDX-License-Identifier: Apache-2.0
#pragma once

// Rows of a LatentCache that is not bf16: written once by mla_prolog, expanded by mla_attention.
// Internal to ops/.

#include <cstddef>
#include <span>

#include "ops/format/latent_cache.h"
#include "ops/tensor/bf16.h"

namespace afd::ops {

class LatentRows {
  public:
    // REQUIRES: cache.dtype is not bf16.
    LatentRows(const LatentCache& cache, size_t latent, size_t rope);

    // int8 takes the latent before any rounding, fp8 as a bf16 cache would hold it.
    // Shapes: ckv [latent], kr [rope].
    void write_int8(size_t slot, const float* ckv, const Bf16* kr) const;
    void write_fp8(size_t slot, const Bf16* ckv, const Bf16* kr) const;
    // Both before any rounding.
    void write_int8_channels(size_t slot, const float* ckv, const float* kr) const;

    // Slots [first, first + count) as bf16. Shapes: ckv [count, latent], kr [count, rope].
    void expand(size_t first, size_t count, Bf16* ckv, Bf16* kr) const;

    // What slots [first, first + count) take, all of it.
    std::span<const std::byte> bytes(size_t first, size_t count) const {
        return {row(first), count * row_bytes_};
    }

  private:
    void expand_channels(const std::byte* from, Bf16* ckv, Bf16* kr) const;
    std::byte* row(size_t slot) const { return cache_.rows + slot * row_bytes_; }

    LatentCache cache_;
    size_t latent_;
    size_t rope_;
    size_t row_bytes_;
};

}  // namespace afd::ops
