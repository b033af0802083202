// SPDX-License-Identifier: Apache-2.0
#pragma once

// MicroBatch: the rows that travel through the layers together, over a lane of their own. One that
// has more rows or longer contexts than attention takes at once goes through it in tiles, and so it
// does through the head.
//
//   idle --fill--> attention(0) -> dispatch -> experts -> attention(1) -> ... -> experts(L-1)
//        <------------------------- head, sampling ------------------------------------'
// All memory is made at start-up. Data thread only.

#include <cstdint>
#include <vector>

#include "daemon/attention/batcher.h"
#include "daemon/lanes/expert_lane.h"
#include "model/decoder/attention_half.h"
#include "ops/format/attention_batch.h"
#include "ops/tensor/tensor_view.h"

namespace afd::daemon {

class MicroBatch {
  public:
    enum class Stage {
        kIdle,       // No rows.
        kAttention,  // Wants attention of `layer`, once its sequences' earlier rows are there.
        kDispatch,   // Wants its lane to be free (R4), then dispatches.
        kExperts,    // The rows are with the experts.
        kHead,       // Wants the head and sampling, once its sequences' earlier rows had theirs.
    };

    // `lane` outlives the object, and no other micro-batch goes over it.
    MicroBatch(uint32_t index, const model::ModelConfig& config, ExpertLane& lane);

    // What it at least has for each row that its lane takes. It is cleared when it is made.
    static uint64_t row_bytes(const model::ModelConfig& config);

    // Lays out the rows of `pieces()`. Call after the batcher filled pieces().
    // Stage: kAttention of layer 0.
    void begin();

    // Forgets the rows, not what was said about a wait for them. Stage: kIdle.
    void clear();

    uint32_t index() const { return index_; }
    ExpertLane& lane() const { return lane_; }
    std::vector<BatchPiece>& pieces() { return pieces_; }
    const std::vector<BatchPiece>& pieces() const { return pieces_; }
    uint32_t num_rows() const { return num_rows_; }

    // Token ids of the rows, [num_rows].
    std::span<const int32_t> tokens() const { return {tokens_.data(), num_rows_}; }
    // Residual stream, [num_rows, hidden].
    model::Residual residual();
    ops::Rows<ops::Bf16> moe_out();
    // The rows [first, first + count), with their blocks of the windowed layers or of the others;
    // and where the router writes about them.
    ops::AttentionBatch attention_batch(uint32_t first, uint32_t count, bool is_windowed) const;
    model::FfnInput ffn_input(uint32_t first, uint32_t count);
    // Rows from `first` on that attend to at most positions_max positions together; at least one
    // and at most rows_max.
    uint32_t rows_within(uint32_t first, uint32_t rows_max, size_t positions_max) const;
    // What goes to the experts. `num_shared` of the layer; `is_routed`: ffn_input() has the
    // routing.
    ops::MoeInput moe_input(uint32_t num_shared, bool is_routed) const;

    // As the router wrote them, [num_rows, top_k].
    const float* topk_weights() const { return topk_weights_.data(); }
    // Calls ends(piece) for each piece with a row whose router scores were not finite.
    // Shape: topk_weights [num_rows, top_k].
    template <typename Ends>
    void for_each_poisoned(const float* topk_weights, const Ends& ends) const;

    // Different routed experts that the rows chose. REQUIRES: ffn_input() has the routing.
    uint32_t count_experts();

    Stage stage = Stage::kIdle;
    bool wants_lane = false;  // Stage kIdle: its lane was not free when rows may have waited.
    uint32_t layer = 0;
    uint32_t num_resent = 0;        // How often `layer` was sent again,
    bool has_lost_rank = false;     // once because a rank was lost (R12).
    uint32_t num_attended = 0;      // Stage kAttention: rows that had the attention of `layer`.
    uint32_t num_emitted = 0;       // Stage kHead: rows that had the head.
    uint64_t wait_start_us = 0;     // Since when it waits for a peer; 0: it does not.
    uint64_t wait_reported_us = 0;  // When a wait was last reported; 0: no report, or it is over.
    uint64_t step_start_ns = 0;     // When the rows were embedded.
    uint64_t dispatched_ns = 0;     // Stage kExperts: since when,
    int32_t round = 0;              // and the lane's round; 0: it has none.

  private:
    const uint32_t index_;
    ExpertLane& lane_;
    const uint32_t rows_max_;
    const uint32_t hidden_;
    const uint32_t top_k_;
    uint32_t num_rows_ = 0;
    std::vector<BatchPiece> pieces_;
    std::vector<int32_t> tokens_;     // [rows_max]
    std::vector<int32_t> positions_;  // [rows_max]
    // Where the rows stand in the KV cache.
    struct Slots {
        explicit Slots(uint32_t rows) : index(rows), block_tables(rows) {}
        void set(uint32_t row, const HeldBlocks& blocks, uint32_t position);

        std::vector<int64_t> index;                // [rows_max]
        std::vector<const int32_t*> block_tables;  // [rows_max]
    };
    Slots slots_;
    Slots windowed_slots_;              // Of layers with a window beside others; or empty.
    std::vector<ops::Bf16> residual_;   // [rows_max, hidden], or, with residual = fp32,
    std::vector<float> wide_residual_;  // [rows_max, hidden]; the other is empty.
    std::vector<ops::Bf16> ffn_rows_;   // [rows_max, hidden]: input of the experts
    std::vector<ops::Bf16> rest_rows_;  // [2, rows_max, hidden]: of ffn_rows_, if others route by
                                        // them with residual = fp32; or empty.
    std::vector<ops::Bf16> moe_out_;    // [rows_max, hidden]
    std::vector<int32_t> topk_ids_;     // [rows_max, top_k]
    std::vector<float> topk_weights_;   // [rows_max, top_k]
    std::vector<bool> is_chosen_;       // [num_experts]: scratch of count_experts().
};

template <typename Ends>
void MicroBatch::for_each_poisoned(const float* topk_weights, const Ends& ends) const {
    uint32_t first = 0;
    for (const BatchPiece& piece : pieces_) {
        bool is_poisoned = false;
        for (uint32_t row = first; row < first + piece.num_rows; ++row) {
            is_poisoned |= model::is_poisoned(&topk_weights[size_t{row} * top_k_]);
        }
        if (is_poisoned) ends(piece);
        first += piece.num_rows;
    }
}

}  // namespace afd::daemon
