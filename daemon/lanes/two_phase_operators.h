// SPDX-License-Identifier: Apache-2.0
#pragma once

// TwoPhaseOperators: the operators of ops/two_phase as one session calls them, with their tables,
// counts and workspace: which shapes, which memory. It knows no flag and no segment; who may call
// what when is the business of remote_two_phase.h.
//
//   begin(input)                        phase 1: send_counts()
//   set_receiver(rank), grants(rank)    where phase 2 writes
//   count_block(b), send_block(b)       blocks in order
//   count_block(b), set_results(rank) of every rank, combine_block(b)
//
// One thread calls. Nothing allocates after construction.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "daemon/lanes/two_phase_tables.h"
#include "model/decoder/smooth_scales.h"
#include "ops/fused_moe/activations.h"
#include "ops/fused_moe/experts.h"
#include "ops/tensor/parallel.h"
#include "ops/tensor/workspace.h"
#include "ops/two_phase/blocks.h"
#include "ops/two_phase/combine.h"
#include "ops/two_phase/layout.h"
#include "ops/two_phase/payload.h"
#include "schedule/layout/row_dtype.h"

namespace afd::daemon {

class TwoPhaseOperators {
  public:
    struct Settings {
        uint32_t session = 0;  // Chooses among replicas.
        uint32_t num_ranks = 0;
        size_t hidden = 0;
        size_t top_k = 0;
        size_t num_shared = 0;  // Dispatched.
        uint32_t num_tokens_max = 0;
        uint32_t block_tokens = 0;
        schedule::RowDtype dispatch_dtype = schedule::RowDtype::kBf16;
        bool row_checksums = false;  // Sent rows are sealed (schedule/layout/row_checksum.h).
    };
    // `smooth`, or null: int8 rows are quantised with the scales of their experts. All outlive the
    // object.
    TwoPhaseOperators(const Settings& settings,
                      const schedule::ExpertPlacement& placement,
                      const model::SmoothScales* smooth,
                      ops::Parallel& parallel);

    uint32_t num_local_experts() const { return num_local_experts_; }
    // Elements of a sent row, as the operators count them.
    size_t row_elements() const { return row_elements_; }

    // Phase 1. Which rows go where follows from the ids alone.
    // REQUIRES: at most num_tokens_max tokens; ids below the layer's routed experts.
    void begin(const ops::MoeInput& input);

    // Rows for each expert of a rank, [num_local_experts]: of the whole round, and of the block
    // that was counted last.
    std::span<const int32_t> send_counts(uint32_t rank) const {
        return part(send_counts_.data(), rank);
    }
    std::span<const int32_t> block_counts(uint32_t rank) const {
        return part(block_counts_.data(), rank);
    }
    void count_block(uint32_t block);

    // The first row of each expert at a rank, to be filled in, [num_local_experts].
    std::span<int64_t> grants(uint32_t rank) { return part(grants_.data(), rank); }
    // Rows of each expert that a rank was sent so far, [num_local_experts].
    std::span<const int64_t> sent(uint32_t rank) const { return part(sent_.data(), rank); }
    // Where a rank's rows go; null for one that gets none.
    void set_receiver(uint32_t rank, std::byte* rows, size_t num_rows);
    // Writes the block's rows to their receivers. REQUIRES: the block was counted.
    void send_block(uint32_t block);

    // Where a rank's results of the counted block lie, rank by rank in the order of its sorted
    // indices; null if it has none.
    void set_results(uint32_t rank, const std::byte* rows);
    // Writes the block's tokens of `out` [num_tokens, hidden]; `shared`: the rows of the shared
    // stage, of these tokens at least. REQUIRES: the block was counted, set_results() of all ranks.
    void combine_block(uint32_t block, const ops::ExpertsOutput& shared, ops::Rows<ops::Bf16> out);

  private:
    void set_input(const ops::MoeInput& input);
    ops::TwoPhaseLayoutRequest layout_request();
    template <typename Request>
    Request block_request(uint32_t block) const;
    ops::TwoPhasePayloadRequest payload_request(uint32_t block);
    ops::TwoPhaseCombineRequest combine_request(uint32_t block);
    void encode_row(size_t token);
    const ops::Bf16* encoded_rows(uint32_t block);

    // [num_ranks, num_local_experts]
    template <typename Void>
    ops::BasicTensorView<Void> by_key(Void* data, ops::DType dtype) const {
        return ops::make_tensor<Void>(data, dtype, {settings_.num_ranks, num_local_experts_});
    }
    template <typename T>
    std::span<T> part(T* array, uint32_t rank) const {
        return {array + size_t{rank} * num_local_experts_, num_local_experts_};
    }

    const Settings settings_;
    const size_t row_bytes_;  // Of a sent row without its seal.
    const TwoPhaseTables tables_;
    const uint32_t num_local_experts_;
    const size_t row_elements_;
    const model::SmoothScales* const smooth_;
    ops::Parallel& parallel_;

    ops::MoeInput input_;
    ops::TwoPhaseRouting routing_;  // Of input_.
    // [num_tokens_max, row_elements_], where a token's rows are all the same but not as they are.
    std::vector<ops::Bf16> encoded_;
    std::vector<int32_t> sorted_indices_;  // [num_tokens_max * K1]: 4 bytes a (token, k).
    std::vector<int32_t> send_counts_;     // [num_ranks, num_local_experts], as are the next five.
    std::vector<int32_t> block_counts_;
    std::vector<int64_t> grants_;
    std::vector<int64_t> sent_;
    std::vector<int64_t> block_base_;
    std::vector<int64_t> block_done_;
    std::vector<int32_t> key_of_expert_;                 // [experts of a layer]
    std::vector<ops::TwoPhaseReceiveBuffer> receivers_;  // [num_ranks]
    std::vector<ops::ConstTensorView> result_views_;     // [num_ranks]
    ops::Workspace workspace_;
};

}  // namespace afd::daemon
