// SPDX-License-Identifier: Apache-2.0
#include "ops/fused_moe/plan/between_processes.h"

#include <algorithm>
#include <limits>

#include "ops/fused_moe/parts/two_phase_prepare_finalize.h"
#include "ops/fused_moe/sent_rows.h"
#include "proto/failure.h"
#include "schedule/layout/two_phase_control.h"
#include "schedule/layout/window_layout.h"

namespace afd::ops {
namespace {

size_t dispatched_slots(const FusedMoeConfig& config) {
    return config.top_k + (config.has_shared_stage ? 0 : config.num_shared);
}

// A geometry counts in 32 bits; what does not fit is refused by its limits.
uint32_t to_word(size_t value) {
    return static_cast<uint32_t>(std::min<size_t>(value, std::numeric_limits<uint32_t>::max()));
}

// A session lays its rounds out by the operators of the part within one process.
Result<> check_two_phase(const FusedMoeConfig& config, size_t experts_of_rank) {
    const PrepareFinalizeCapability& record = TwoPhasePrepareFinalize::kCapability;
    if (config.num_ranks > record.max_num_ranks) {
        return invalid_argument("num_ranks is {}; two-phase rounds have {} at most",
                                with(config.num_ranks, record.max_num_ranks));
    }
    if (experts_of_rank > record.max_experts_per_rank) {
        return invalid_argument(
            "num_experts {} over num_ranks {}, with num_shared {} at each, are {} experts of a "
            "rank; two-phase rounds have {} at most",
            with(config.num_experts,
                 config.num_ranks,
                 config.num_shared,
                 experts_of_rank,
                 record.max_experts_per_rank));
    }
    return {};
}

uint32_t slot_bytes(size_t content_bytes) {
    return to_word(schedule::round_up(content_bytes, schedule::kTokenAlignBytes));
}

}  // namespace

Result<Capacity> window_bytes(const FusedMoeConfig& config, bool ranks_route) {
    const size_t value_bytes = config.hidden * sizeof(Bf16);
    const size_t sent_bytes = sent_row_bytes(config.dispatch_dtype, config.hidden);
    const schedule::Geometry geometry{
        .num_sessions = 1,
        .num_micro_batches = to_word(config.num_micro_batches),
        .micro_batch_size = to_word(config.max_num_tokens),
        .selected_expert_num = to_word(dispatched_slots(config)),
        .num_experts = to_word(config.num_experts + config.num_shared),
        .attn_to_ffn_token_bytes = slot_bytes(sent_bytes),
        .ffn_to_attn_token_bytes = slot_bytes(value_bytes + (ranks_route ? sizeof(float) : 0)),
        .num_ffn_workers = to_word(config.num_ranks)};
    AFD_ASSIGN(const schedule::WindowLayout layout, schedule::WindowLayout::compute(geometry));
    return Capacity(layout.ffn_window.total_bytes) * config.num_ranks +
           Capacity(layout.attention_window.total_bytes);
}

Result<Capacity> two_phase_bytes(const FusedMoeConfig& config, size_t block_tokens) {
    if (block_tokens == 0)
        return invalid_argument("block_tokens is {}; allowed are 1 and more", with(0));
    const size_t num_slots = dispatched_slots(config);
    const size_t num_blocks =
        config.max_num_tokens / block_tokens + (config.max_num_tokens % block_tokens == 0 ? 0 : 1);
    const Capacity block_rows = Capacity(std::min(config.max_num_tokens, block_tokens)) * num_slots;
    const size_t places = std::min<size_t>(num_blocks, schedule::kTwoPhaseReturnBlocks);
    // Local experts of a rank: its part of the routed ones, and all shared ones.
    const size_t num_experts =
        (config.num_experts + config.num_ranks - 1) / config.num_ranks + config.num_shared;
    AFD_TRY(check_two_phase(config, num_experts));
    // As two_phase_rows_offset(), which counts on less.
    const Capacity counts = Capacity(num_blocks) * (num_experts * sizeof(int32_t));
    if (counts.overflowed()) return counts;
    const Capacity rows = Capacity(config.max_num_tokens) * num_slots *
                          sent_row_bytes(config.dispatch_dtype, config.hidden);
    // A rank's largest block is at most a whole one, and no two ranks get the same one whole.
    const Capacity results = block_rows * std::min(num_blocks, config.num_ranks) * places *
                             (config.hidden * sizeof(Bf16));
    return Capacity(schedule::round_up(counts.value(), schedule::kLineBytes)) * config.num_ranks +
           rows + results;
}

}  // namespace afd::ops
