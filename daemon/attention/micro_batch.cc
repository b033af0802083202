// SPDX-License-Identifier: Apache-2.0
#include "daemon/attention/micro_batch.h"

#include <algorithm>

#include "model/attention/kv_cache.h"
#include "model/attention/layer_windows.h"

namespace afd::daemon {

MicroBatch::MicroBatch(uint32_t index, const model::ModelConfig& config, ExpertLane& lane)
    : index_(index),
      lane_(lane),
      rows_max_(lane.traits().rows_max),
      hidden_(config.hidden),
      top_k_(config.top_k),
      tokens_(rows_max_),
      positions_(rows_max_),
      slots_(rows_max_),
      windowed_slots_(model::LayerWindows::of(config).window == 0 ? 0 : rows_max_),
      residual_(config.residual == model::ResidualType::kFp32 ? 0
                                                              : size_t{rows_max_} * config.hidden),
      wide_residual_(residual_.empty() ? size_t{rows_max_} * config.hidden : 0),
      ffn_rows_(size_t{rows_max_} * config.hidden),
      rest_rows_(lane.traits().routes ? 2 * wide_residual_.size() : 0),
      moe_out_(size_t{rows_max_} * config.hidden),
      topk_ids_(size_t{rows_max_} * config.top_k),
      topk_weights_(size_t{rows_max_} * config.top_k),
      is_chosen_(config.num_experts) {
    // As many pieces as rows at most, so that a batch never allocates (promise 5).
    pieces_.reserve(rows_max_);
}

uint64_t MicroBatch::row_bytes(const model::ModelConfig& config) {
    const size_t residual_bytes =
        config.residual == model::ResidualType::kFp32 ? sizeof(float) : sizeof(ops::Bf16);
    return config.hidden * (residual_bytes + 2 * sizeof(ops::Bf16)) +
           config.top_k * (sizeof(int32_t) + sizeof(float));
}

void MicroBatch::Slots::set(uint32_t row, const HeldBlocks& blocks, uint32_t position) {
    index[row] = model::cache_row(blocks.table, position);
    block_tables[row] = blocks.table.data();
}

void MicroBatch::begin() {
    num_rows_ = 0;
    for (const BatchPiece& piece : pieces_) {
        const Sequence& sequence = *piece.sequence;
        for (uint32_t i = 0; i < piece.num_rows; ++i, ++num_rows_) {
            const uint32_t position = piece.first_position + i;
            AFD_ASSERT(num_rows_ < tokens_.size(),
                       "%u rows in a micro-batch of %zu",
                       num_rows_,
                       tokens_.size());
            tokens_[num_rows_] = static_cast<int32_t>(sequence.request->tokens[position]);
            positions_[num_rows_] = static_cast<int32_t>(position);
            // Written here once and not at each layer: all layers of a token use the same row.
            slots_.set(num_rows_, sequence.held, position);
            if (!sequence.windowed.table.empty()) {
                windowed_slots_.set(num_rows_, sequence.windowed, position);
            }
        }
    }
    layer = 0;
    num_resent = 0;
    has_lost_rank = false;
    num_attended = 0;
    num_emitted = 0;
    stage = Stage::kAttention;
}

void MicroBatch::clear() {
    pieces_.clear();
    num_rows_ = 0;
    wait_start_us = 0;
    stage = Stage::kIdle;
}

model::Residual MicroBatch::residual() {
    if (residual_.empty()) return ops::make_rows(wide_residual_.data(), num_rows_, hidden_);
    return ops::make_rows(residual_.data(), num_rows_, hidden_);
}

ops::Rows<ops::Bf16> MicroBatch::moe_out() {
    return ops::make_rows(moe_out_.data(), num_rows_, hidden_);
}

ops::AttentionBatch MicroBatch::attention_batch(uint32_t first,
                                                uint32_t count,
                                                bool is_windowed) const {
    const Slots& slots = is_windowed ? windowed_slots_ : slots_;
    return {.num_tokens = count,
            .positions = positions_.data() + first,
            .cache_index = slots.index.data() + first,
            .block_tables = slots.block_tables.data() + first};
}

uint32_t MicroBatch::rows_within(uint32_t first, uint32_t rows_max, size_t positions_max) const {
    const uint32_t last = std::min(num_rows_, first + rows_max);
    size_t num_positions = 0;
    for (uint32_t row = first; row < last; ++row) {
        num_positions += static_cast<size_t>(positions_[row]) + 1;
        if (num_positions > positions_max) return std::max(row - first, 1u);
    }
    return last - first;
}

model::FfnInput MicroBatch::ffn_input(uint32_t first, uint32_t count) {
    model::FfnInput input{
        .x = ops::make_rows(ffn_rows_.data(), num_rows_, hidden_).slice(first, count),
        .routing = {topk_ids_.data() + size_t{first} * top_k_,
                    topk_weights_.data() + size_t{first} * top_k_,
                    tokens_.data() + first}};
    if (rest_rows_.empty()) return input;
    ops::Bf16* const low = rest_rows_.data() + rest_rows_.size() / 2;
    input.middle = ops::make_rows(rest_rows_.data(), num_rows_, hidden_).slice(first, count);
    input.low = ops::make_rows(low, num_rows_, hidden_).slice(first, count);
    return input;
}

ops::MoeInput MicroBatch::moe_input(uint32_t num_shared, bool is_routed) const {
    ops::MoeInput input{
        .x = ops::make_rows(ffn_rows_.data(), num_rows_, hidden_),
        .layer_id = layer,
        .num_tokens = num_rows_,
        .top_k = top_k_,
        .num_shared = num_shared,
        // Null means that the rows are offered: the FFN workers route them (router = ffn).
        .topk_ids = is_routed ? topk_ids_.data() : nullptr,
        .topk_weights = is_routed ? topk_weights_.data() : nullptr};
    if (is_routed || rest_rows_.empty()) return input;
    const ops::Bf16* const low = rest_rows_.data() + rest_rows_.size() / 2;
    input.x_middle = ops::make_rows(rest_rows_.data(), num_rows_, hidden_);
    input.x_low = ops::make_rows(low, num_rows_, hidden_);
    return input;
}

uint32_t MicroBatch::count_experts() {
    // Assigned in place: no allocation in the steady state.
    is_chosen_.assign(is_chosen_.size(), false);
    uint32_t count = 0;
    for (const int32_t id : std::span(topk_ids_).first(size_t{num_rows_} * top_k_)) {
        if (id < 0 || is_chosen_[static_cast<size_t>(id)]) continue;
        is_chosen_[static_cast<size_t>(id)] = true;
        ++count;
    }
    return count;
}

}  // namespace afd::daemon
