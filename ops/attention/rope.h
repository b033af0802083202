// SPDX-License-Identifier: Apache-2.0
#pragma once

// Rotary position embedding: tables (plain and YaRN) and the rotation.
//
// Input pairs are interleaved (2i, 2i+1); the output is in half layout: element i and element
// i + dim/2 belong together. out[i] = x[2i]·cos_i − x[2i+1]·sin_i,
// out[i + dim/2] = x[2i+1]·cos_i + x[2i]·sin_i, in fp32, each →bf16 once.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "ops/tensor/bf16.h"
#include "proto/status.h"

namespace afd::ops {

// Fields as in a checkpoint's rope_scaling with type "yarn" (Peng et al. 2023, and DeepSeek-V2's
// mscale): frequencies are interpolated by `factor` below the correction range, kept above it.
struct YarnScaling {
    double factor = 1.0;
    double original_max_positions = 4096;
    double beta_fast = 32;
    double beta_slow = 1;
    double mscale = 1;
    double mscale_all_dim = 0;
    bool truncate = true;  // The correction range is widened to whole pairs.
};

// The longrope of checkpoints (Ding et al. 2024), of a context whose length is known: the frequency
// of pair i divided by factors[i], and both tables multiplied by `scale`.
struct LongRope {
    std::vector<double> factors;  // [dim / 2]
    double scale = 1;
};

struct RopeConfig {
    size_t dim = 0;  // Of what is rotated of a head, even.
    double theta = 10000;
    size_t num_positions = 0;
    std::optional<YarnScaling> yarn;
    std::optional<LongRope> long_rope = {};  // Not with yarn.
};

// YaRN's attention factor: 0.1 · mscale · ln(factor) + 1, or 1 for factor <= 1.
double yarn_mscale(double factor, double mscale);

// [dim / 2], fp32: theta^(-2i / dim), by YaRN or longrope where the configuration has one.
// REQUIRES: RopeTable::make() would take the configuration.
std::vector<float> rope_frequencies(const RopeConfig& config);

// cos and sin of every position and frequency, fp32. The angle is the fp32 product of position and
// the fp32 frequency, as the training code has it. Frequencies and YaRN's factor are of
// ops/tensor/double_math.h, cos and sin ours as well (none libm's), so the table has the same bits
// on every machine. With YaRN both are multiplied by
// yarn_mscale(factor, mscale) / yarn_mscale(factor, mscale_all_dim), with longrope by its scale.
class RopeTable {
  public:
    RopeTable() = default;

    // Errors: kInvalidArgument names the field (dim odd or 0, theta or factor not positive, more
    // than 2^30 angles, ...).
    static Result<RopeTable> make(const RopeConfig& config);

    size_t dim() const { return dim_; }
    size_t num_positions() const { return num_positions_; }

    // dim/2 values each. REQUIRES: position < num_positions().
    const float* cos(size_t position) const { return &cos_[position * (dim_ / 2)]; }
    const float* sin(size_t position) const { return &sin_[position * (dim_ / 2)]; }

  private:
    size_t dim_ = 0;
    size_t num_positions_ = 0;
    std::vector<float> cos_;
    std::vector<float> sin_;
};

// Rotates one vector of table.dim() elements. x and out must not overlap.
void rope(const Bf16* x, const RopeTable& table, size_t position, Bf16* out);

// The same before its rounding.
void rope(const Bf16* x, const RopeTable& table, size_t position, float* out);

// A vector that is in half layout already, as plain attention has it:
// out[i] = x[i]·cos_i − x[i + dim/2]·sin_i, out[i + dim/2] = x[i + dim/2]·cos_i + x[i]·sin_i.
// out may be x.
void rope_half(const Bf16* x, const RopeTable& table, size_t position, Bf16* out);

// The rotation before its rounding, with one row [dim] each of full-width tables: out[i] takes
// cos[i] and sin[i], the two halves of a row need not be equal. x and out must not overlap.
void rope(const Bf16* x, const Bf16* cos, const Bf16* sin, size_t dim, float* out);
void rope(const float* x, const Bf16* cos, const Bf16* sin, size_t dim, float* out);

}  // namespace afd::ops
