// SPDX-License-Identifier: Apache-2.0
#pragma once

// TwoPhasePrepareFinalize: the two-phase dispatch within one process, over the operators of
// ops/two_phase/.
//
// Phase 1 counts the rows of every rank and expert, phase 2 copies (or quantises) them into a
// segment of which exactly these rows are used; what the experts get is sorted by rank and expert,
// format Grouped. Routed experts and after them the shared ones lie in a line over `num_ranks`
// ranks, the first ranks holding one more where they do not divide evenly. Combine finds each
// slot's row by an index. Memory for the largest micro-batch is reserved at construction.

#include <optional>
#include <vector>

#include "ops/fused_moe/dispatch_rows.h"
#include "ops/fused_moe/parts/in_process.h"
#include "ops/two_phase/blocks.h"
#include "ops/two_phase/entries.h"

namespace afd::ops {

class TwoPhasePrepareFinalize final : public InProcess {
  public:
    // `parallel` outlives the object. REQUIRES: num_ranks >= 1.
    TwoPhasePrepareFinalize(const FusedMoeConfig& config, size_t num_ranks, Parallel& parallel);

    static constexpr PrepareFinalizeCapability kCapability{
        .name = "two_phase",
        .activation_format = ActivationFormat::kGrouped,
        .dispatch_dtypes = bit(RowDtype::kBf16) | bit(RowDtype::kInt8) | bit(RowDtype::kFp8),
        .adds_shared_rows = true,
        .knows_weights = true,
        .reduces = bit(WeightAndReduceKind::kNaiveBatched),
        .delegate = WeightAndReduceKind::kNaiveBatched,
        // Of the operators' attributes.
        .max_num_ranks = two_phase::kRanksMax,
        .max_experts_per_rank = two_phase::kLocalExpertsMax,
        .shares_layouts = true,
        .defers_finalize = true,
        .bounds_rows = true,
    };
    // What the constructor reserves, but for the table of ranks.
    static InProcessMemory memory(const FusedMoeConfig& config,
                                  size_t num_ranks,
                                  unsigned num_threads);

    Activations activations(const Ticket& ticket) const override;

  private:
    // num_keys = num_ranks · num_local_experts.
    struct Layout {
        int32_t* sorted_indices;  // [num_tokens · num_slots]
        int32_t* send_counts;     // [num_keys]
        int64_t* base;            // [num_keys]
        int32_t* row_index;       // [num_tokens · num_slots], -1 masks.
        int32_t* routed_ids;      // [num_tokens · top_k], -1 masks.
        int32_t* expert_counts;   // [num_experts + num_shared]
        size_t num_rows;
    };
    struct Batch {
        ExpertGroup* groups;  // [num_keys], of which num_groups are used.
        std::byte* segment;   // Rows, and with int8
        float* scale;         // their scales.
        size_t num_groups;
    };

    // Errors: kInvalidArgument: rows of x with gaps between them.
    Result<> lay_out(const MoeInput& input, size_t index) override;
    Result<> send(const MoeInput& input, size_t slot, size_t index) override;
    const int32_t* row_index(size_t layout) const override { return layouts_[layout].row_index; }
    Count num_rows(size_t layout) const override { return Count(layouts_[layout].num_rows); }
    const int32_t* expert_counts(size_t layout) const override {
        return layouts_[layout].expert_counts;
    }

    TwoPhaseBlocks blocks_of(const MoeInput& input, const Layout& layout) const;
    void index_rows(const MoeInput& input, const Layout& layout);
    PhysicalExpert physical_expert(LogicalExpert expert) const;
    size_t key_of(PhysicalExpert expert) const;
    void group_rows(const MoeInput& input, const Layout& layout, Batch& batch) const;

    size_t num_ranks_;
    size_t num_local_experts_;
    Parallel& parallel_;
    std::optional<DispatchRows> rounded_;  // Set by the constructor.
    std::vector<int32_t> table_;           // [num_experts + num_shared, 2]: rank, local id.
    int64_t* recv_total_;                  // [num_ranks]
    std::span<std::byte> workspace_;
    std::vector<Layout> layouts_;
    std::vector<Batch> batches_;
};

}  // namespace afd::ops
