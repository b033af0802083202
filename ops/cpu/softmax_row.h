// SPDX-License-Identifier: Apache-2.0
#pragma once

// One step of the online softmax as plain loops, which the compiler vectorises. Included by
// kernels_*.cc only; softmax_avx2.h and softmax_avx512.h compute the same bits, and
// softmax_avx512_bf16.h those of TinyWeights::kZero.

#include <bit>
#include <cstddef>

#include "ops/format/attention_batch.h"
#include "ops/tensor/bf16.h"
#include "ops/tensor/lanes.h"
#include "ops/tensor/math.h"

namespace afd::ops::cpu {
namespace {

// What becomes of a weight below 2^-126 on its way to bf16: it is rounded like any other, maybe up
// to 2^-126, or is zero, as the instruction of classes with pairs has it.
enum class TinyWeights { kRounded, kZero };

template <TinyWeights kTiny>
void softmax_step_of(
    float* scores, size_t num_positions, float* maximum, float* sum, float* alpha, Bf16* p) {
    const float minus_infinity = std::bit_cast<float>(0xff800000u);
    for (size_t i = num_positions; i < kAttentionBlock; ++i) scores[i] = minus_infinity;
    float largest[kLanes];
    for (size_t i = 0; i < kLanes; ++i) largest[i] = *maximum;
    for (size_t first = 0; first < kAttentionBlock; first += kLanes) {
        for (size_t i = 0; i < kLanes; ++i) {
            const float score = scores[first + i];
            largest[i] = score > largest[i] ? score : largest[i];
        }
    }
    float top = largest[0];
    for (size_t i = 1; i < kLanes; ++i) top = largest[i] > top ? largest[i] : top;

    float lanes[kLanes] = {};
    for (size_t first = 0; first < kAttentionBlock; first += kLanes) {
        for (size_t i = 0; i < kLanes; ++i) {
            const float value = exp(scores[first + i] - top);
            lanes[i] = lanes[i] + value;
            const bool is_kept = kTiny == TinyWeights::kRounded || value >= 0x1p-126f;
            p[first + i] = is_kept ? from_float(value) : Bf16{};
        }
    }
    *alpha = exp(*maximum - top);
    *sum = *sum * *alpha + sum_lanes(lanes);
    *maximum = top;
}

[[maybe_unused]] void softmax_step(
    float* scores, size_t num_positions, float* maximum, float* sum, float* alpha, Bf16* p) {
    softmax_step_of<TinyWeights::kRounded>(scores, num_positions, maximum, sum, alpha, p);
}

}  // namespace
}  // namespace afd::ops::cpu
