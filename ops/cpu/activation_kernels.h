// SPDX-License-Identifier: Apache-2.0
#pragma once

// The rows of every ExpertActivation, with the same bits in every numeric class; each kernel file
// compiles its own copy. Included by kernels_*.cc only.

#include <cstddef>

#include "ops/cpu/kernels.h"
#include "ops/cpu/row_kernels.h"
#include "ops/format/expert_activation.h"
#include "ops/tensor/math.h"

namespace afd::ops::cpu {
namespace {

template <ExpertActivation kActivation>
inline float activate(float gate, [[maybe_unused]] float up) {
    using enum ExpertActivation;
    if constexpr (kActivation == kGelu) return gelu(gate) * up;
    if constexpr (kActivation == kGeluTanh) return gelu_tanh(gate) * up;
    if constexpr (kActivation == kSwigluOai) {
        const float g = gate > kSwigluOaiLimit ? kSwigluOaiLimit : gate;
        float u = up > kSwigluOaiLimit ? kSwigluOaiLimit : up;
        u = u < -kSwigluOaiLimit ? -kSwigluOaiLimit : u;
        return (u + 1.0f) * (g * sigmoid(kSwigluOaiAlpha * g));
    }
    if constexpr (kActivation == kSiluUngated) return silu(gate);
    if constexpr (kActivation == kGeluUngated) return gelu(gate);
    if constexpr (kActivation == kGeluTanhUngated) return gelu_tanh(gate);
    if constexpr (kActivation == kReluSquared) {
        const float positive = gate < 0.0f ? 0.0f : gate;
        return positive * positive;
    }
}

template <ExpertActivation kActivation>
inline Bf16 activate_rounded(const float* gate, [[maybe_unused]] const float* up, size_t i) {
    float rounded_up = 0.0f;
    if constexpr (is_gated(kActivation)) rounded_up = to_float(from_float(up[i]));
    return from_float(activate<kActivation>(to_float(from_float(gate[i])), rounded_up));
}

template <ExpertActivation kActivation>
void activate_row(const float* gate, const float* up, size_t count, Bf16* h) {
    size_t done = 0;
    for (; done + kLanes <= count; done += kLanes) {
        for (size_t i = 0; i < kLanes; ++i) {
            h[done + i] = activate_rounded<kActivation>(gate, up, done + i);
        }
    }
    for (; done < count; ++done) h[done] = activate_rounded<kActivation>(gate, up, done);
}

// In the order of ExpertActivation.
constexpr std::array<ActivateRow, kNumExpertActivations> kActivateRows = {
    swiglu_row,
    activate_row<ExpertActivation::kGelu>,
    activate_row<ExpertActivation::kGeluTanh>,
    activate_row<ExpertActivation::kSwigluOai>,
    activate_row<ExpertActivation::kSiluUngated>,
    activate_row<ExpertActivation::kGeluUngated>,
    activate_row<ExpertActivation::kGeluTanhUngated>,
    activate_row<ExpertActivation::kReluSquared>};

// The same with another function for the first.
constexpr std::array<ActivateRow, kNumExpertActivations> activate_rows_with(ActivateRow swiglu) {
    auto rows = kActivateRows;
    rows[0] = swiglu;
    return rows;
}

}  // namespace
}  // namespace afd::ops::cpu
