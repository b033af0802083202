// SPDX-License-Identifier: Apache-2.0
#pragma once

// Attention of several states over one block with AMX: the bits of attention_amx.h, with what is
// loaded of the block used by all of them. Compiled into ops/cpu/amx/kernels_amx.cc and tests only.
//
// A product takes no position that is not a span's own, not even with a p of 0: the value may be
// anything, and adding a zero can change the sign of one.

#include <span>

#include "ops/cpu/amx/attention_amx.h"
#include "ops/cpu/amx/span_scores_amx.h"
#include "ops/cpu/amx/span_sums_amx.h"
#include "ops/cpu/amx/tile_unit_amx.h"
#include "ops/cpu/kernels.h"

namespace afd::ops::cpu {
namespace {

template <typename Unit>
void attend_amx_spans(const AttendBlock& b, std::span<const HeadsSpan> spans, Bf16* room) {
    const HeadsState& s = *spans[0].state;
    if (s.latent % kStepElements != 0 || s.rope % kStepElements != 0) {
        for (const HeadsSpan& span : spans) attend_amx_block<Unit>(b.of(span), *span.state);
        return;
    }
    if (b.is_cold) fetch_cold_block(b, s);
    score_spans<Unit>(b, spans);
    SizedTiles<Unit, SumSizes> tiles;
    sum_whole_steps(tiles, b, spans);
    sum_last_steps(tiles, b, spans, room);
    Unit::release();
}

}  // namespace
}  // namespace afd::ops::cpu
