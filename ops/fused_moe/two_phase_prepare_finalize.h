// SPDX-License-Identifier: Apache-2.0
#pragma once

// TwoPhasePrepareFinalize: the two-phase dispatch within one process, over the operators
// ops/two_phase_*.h.
//
// Phase 1 counts the rows of every rank and expert, phase 2 copies (or quantises) them into a
// segment of which exactly these rows are used; what the experts get is sorted by rank and expert,
// format Grouped. Routed experts and after them the shared ones lie in a line over `num_ranks`
// ranks, the first ranks holding one more where they do not divide evenly. Combine finds each
// slot's row by an index. Memory for the largest micro-batch is reserved at construction.

#include <vector>

#include "ops/fused_moe/in_process.h"
#include "ops/two_phase_blocks.h"
#include "ops/workspace.h"

namespace afd::ops {

class TwoPhasePrepareFinalize final : public InProcess {
  public:
    // `parallel` outlives the object. REQUIRES: num_ranks >= 1.
    TwoPhasePrepareFinalize(const FusedMoeConfig& config, size_t num_ranks, Parallel& parallel);

    static constexpr PrepareFinalizeCapability kCapability{
        .name = "two_phase",
        .activation_format = ActivationFormat::kGrouped,
        .quantises_dispatch = true,
        .adds_shared_rows = true,
        .reduces = bit(WeightAndReduceKind::kNaiveBatched),
        .delegate = WeightAndReduceKind::kNaiveBatched,
    };
    const PrepareFinalizeCapability& capability() const override { return kCapability; }

    // Errors: kInvalidArgument: rows of x with gaps between them.
    Result<Ticket> prepare_async(const MoeInput& input, uint32_t slot) override;
    Activations activations(const Ticket& ticket) const override;
    Result<void> finalize(Ticket&& ticket,
                          const TopKWeightAndReduce& reduce,
                          Rows<Bf16> out) override;

  private:
    // Of one micro-batch; num_keys = num_ranks · num_local_experts.
    struct Batch {
        std::vector<int32_t> sorted_indices;  // [max_num_tokens · num_slots]
        std::vector<int32_t> send_counts;     // [num_keys]
        std::vector<int64_t> base;            // [num_keys]
        std::vector<ExpertGroup> groups;      // [num_keys], of which num_groups are used.
        std::vector<int32_t> row_index;       // [max_num_tokens · num_slots], -1 masks.
        std::vector<std::byte> segment;       // Rows, and with int8
        std::vector<float> scale;             // their scales.
        size_t num_groups = 0;
        size_t num_rows = 0;
    };

    TwoPhaseRouting routing_of(const MoeInput& input) const;
    TwoPhaseBlocks blocks_of(const MoeInput& input, Batch& batch) const;
    Result<> count(const MoeInput& input, Batch& batch);
    Result<> send(const MoeInput& input, Batch& batch);
    void index_rows(const MoeInput& input, Batch& batch);

    size_t num_ranks_;
    size_t num_local_experts_;
    Parallel& parallel_;
    std::vector<int32_t> table_;       // [num_experts + num_shared, 2]: rank, local id.
    std::vector<int64_t> recv_total_;  // [num_ranks]
    std::vector<Batch> batches_;
    Workspace workspace_;
};

}  // namespace afd::ops
