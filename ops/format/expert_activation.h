// SPDX-License-Identifier: Apache-2.0
#pragma once

// ExpertActivation: what stands between the two products of an expert's MLP.
//
//   gated:    h = (f(gate) · up) →bf16, with gate = (x·Wgateᵀ + b) →bf16 and up likewise
//   ungated:  h = f(gate) →bf16, and there is no up projection
// f in fp32 (ops/tensor/math.h), the same bits in every numeric class.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace afd::ops {

enum class ExpertActivation : uint8_t {
    kSilu,      // x · sigmoid(x)
    kGelu,      // x · (1 + erf(x / √2)) / 2
    kGeluTanh,  // x · (1 + tanh(√(2/π) · (x + 0.044715·x³))) / 2
    // gpt-oss: g = min(gate, 7), u = up clamped to [-7, 7], h = (u + 1) · (g · sigmoid(1.702·g)).
    kSwigluOai,
    kSiluUngated,
    kGeluUngated,
    kGeluTanhUngated,
    kReluSquared,  // max(x, 0)², ungated
};

inline constexpr std::array kExpertActivations = {ExpertActivation::kSilu,
                                                  ExpertActivation::kGelu,
                                                  ExpertActivation::kGeluTanh,
                                                  ExpertActivation::kSwigluOai,
                                                  ExpertActivation::kSiluUngated,
                                                  ExpertActivation::kGeluUngated,
                                                  ExpertActivation::kGeluTanhUngated,
                                                  ExpertActivation::kReluSquared};
inline constexpr size_t kNumExpertActivations = kExpertActivations.size();

// Constants of kSwigluOai.
inline constexpr float kSwigluOaiLimit = 7.0f;
inline constexpr float kSwigluOaiAlpha = 1.702f;

// Whether the expert has an up projection beside the gate.
constexpr bool is_gated(ExpertActivation activation) {
    return activation <= ExpertActivation::kSwigluOai;
}

constexpr std::string_view name_of(ExpertActivation activation) {
    switch (activation) {
        case ExpertActivation::kSilu:
            return "silu";
        case ExpertActivation::kGelu:
            return "gelu";
        case ExpertActivation::kGeluTanh:
            return "gelu_tanh";
        case ExpertActivation::kSwigluOai:
            return "swiglu_oai";
        case ExpertActivation::kSiluUngated:
            return "silu_ungated";
        case ExpertActivation::kGeluUngated:
            return "gelu_ungated";
        case ExpertActivation::kGeluTanhUngated:
            return "gelu_tanh_ungated";
        case ExpertActivation::kReluSquared:
            return "relu_squared";
    }
    return "unknown";
}

}  // namespace afd::ops
