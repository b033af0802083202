// SPDX-License-Identifier: Apache-2.0
#pragma once

// Kernels::attend_block of classes that multiply floats: scores of rows or of pairs
// (ops/cpu/attend_floats.h, ops/cpu/key_pair_scores.h, which say what Class has), the softmax,
// sums. Included by kernels_avx*.cc only.

#include "ops/cpu/attend_floats.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/key_pair_scores.h"
#include "ops/tensor/bf16.h"

namespace afd::ops::cpu {
namespace {

// What no block named as its next, all at once.
inline void fetch_cold(const HeadsState& s, const AttendBlock& b) {
    const auto fetch = [&](const Bf16* rows, size_t width) {
        if (rows == nullptr) return;
        const size_t bytes = b.num_positions * width * sizeof(Bf16);
        LineFetches(CacheLevel::kSecond, rows, bytes, 1).next();
    };
    fetch(b.kr, s.rope);
    // The pairs of fewer positions than a block has are not contiguous.
    if (!b.keys_in_pairs || b.num_positions == kAttentionBlock) fetch(b.ckv, s.latent);
    fetch(b.values, s.latent);
}

template <typename Class>
void attend_float_block(const AttendBlock& b, const HeadsState& s) {
    ScoreRows scores;
    ScoreRows p;
    if (b.is_cold) fetch_cold(s, b);
    if (b.keys_in_pairs) {
        key_pair_scores<Class>(s, b, scores);
    } else {
        float_scores<Class>(s, b, scores);
    }
    Class::softmax(s, b, scores, p);
    float_sums<Class>(s, b, p);
}

}  // namespace
}  // namespace afd::ops::cpu
