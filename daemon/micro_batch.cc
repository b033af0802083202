// SPDX-License-Identifier: Apache-2.0
#include "daemon/micro_batch.h"

#include "model/kv_cache.h"

namespace afd::daemon {

MicroBatch::MicroBatch(uint32_t index, const model::ModelConfig& config, uint32_t micro_batch_size)
    : index_(index),
      hidden_(config.hidden),
      top_k_(config.top_k),
      tokens_(micro_batch_size),
      positions_(micro_batch_size),
      cache_index_(micro_batch_size),
      block_tables_(micro_batch_size),
      residual_(size_t{micro_batch_size} * config.hidden),
      ffn_rows_(size_t{micro_batch_size} * config.hidden),
      moe_out_(size_t{micro_batch_size} * config.hidden),
      topk_ids_(size_t{micro_batch_size} * config.top_k),
      topk_weights_(size_t{micro_batch_size} * config.top_k) {
    pieces_.reserve(micro_batch_size);
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
            cache_index_[num_rows_] = model::cache_row(sequence.block_table, position);
            block_tables_[num_rows_] = sequence.block_table.data();
        }
    }
    layer = 0;
    stage = Stage::kAttention;
}

void MicroBatch::clear() {
    pieces_.clear();
    num_rows_ = 0;
    wait_start_us = 0;
    wait_reported_us = 0;
    stage = Stage::kIdle;
}

ops::Rows<ops::Bf16> MicroBatch::residual() {
    return ops::make_rows(residual_.data(), num_rows_, hidden_);
}

ops::Rows<ops::Bf16> MicroBatch::moe_out() {
    return ops::make_rows(moe_out_.data(), num_rows_, hidden_);
}

ops::AttentionBatch MicroBatch::attention_batch() const {
    return {.num_tokens = num_rows_,
            .positions = positions_.data(),
            .cache_index = cache_index_.data(),
            .block_tables = block_tables_.data()};
}

model::FfnInput MicroBatch::ffn_input() {
    return {.x = ops::make_rows(ffn_rows_.data(), num_rows_, hidden_),
            .routing = {topk_ids_.data(), topk_weights_.data()}};
}

ops::MoeInput MicroBatch::moe_input(uint32_t num_shared, bool is_routed) const {
    return {.x = ops::make_rows(ffn_rows_.data(), num_rows_, hidden_),
            .layer_id = layer,
            .num_tokens = num_rows_,
            .top_k = top_k_,
            .num_shared = num_shared,
            .topk_ids = is_routed ? topk_ids_.data() : nullptr,
            .topk_weights = is_routed ? topk_weights_.data() : nullptr};
}

}  // namespace afd::daemon
