// SPDX-License-Identifier: Apache-2.0
#pragma once

// LocalPrepareFinalize: the fused-MoE path within one process (colocated mode, tests).
//
// Dispatch renames logical ids to local ones (they are the same here; shared expert j is local
// num_experts + j) and moves no row; combine is the experts' TopKWeightAndReduce.

#include <vector>

#include "ops/fused_moe/dispatch_rows.h"
#include "ops/fused_moe/parts/in_process.h"

namespace afd::ops {

class LocalPrepareFinalize final : public InProcess {
  public:
    // Room for config.num_micro_batches tickets of config.max_num_tokens tokens. `parallel`
    // outlives the object.
    LocalPrepareFinalize(const FusedMoeConfig& config, Parallel& parallel);

    static constexpr PrepareFinalizeCapability kCapability{
        .name = "local",
        .activation_format = ActivationFormat::kStandard,
        .dispatch_dtypes = bit(RowDtype::kBf16) | bit(RowDtype::kInt8) | bit(RowDtype::kFp8),
        .adds_shared_rows = true,
        .knows_weights = true,
        .reduces = bit(WeightAndReduceKind::kNoOp) | bit(WeightAndReduceKind::kContiguous),
        .delegate = WeightAndReduceKind::kContiguous,
        .shares_layouts = true,
        .defers_finalize = true,
        .bounds_rows = true,
    };
    // What the constructor reserves.
    static InProcessMemory memory(const FusedMoeConfig& config);

    Activations activations(const Ticket& ticket) const override;

  private:
    struct Layout {
        LocalExpert* local_ids;  // [num_tokens, num_slots]
        int32_t* row_index;      // The same: every slot's own row, or -1.
        int32_t* expert_counts;  // [num_experts + num_shared]
        size_t num_rows;
    };
    struct Batch {
        DispatchRows rows;
        ActivationRows x;
        float* weights;  // [num_tokens, num_slots], 1 for a shared slot.
    };

    Result<> lay_out(const MoeInput& input, size_t index) override;
    Result<> send(const MoeInput& input, size_t slot, size_t index) override;
    const int32_t* row_index(size_t layout) const override { return layouts_[layout].row_index; }
    Count num_rows(size_t layout) const override { return Count(layouts_[layout].num_rows); }
    const int32_t* expert_counts(size_t layout) const override {
        return layouts_[layout].expert_counts;
    }

    Parallel& parallel_;
    std::vector<Layout> layouts_;
    std::vector<Batch> batches_;
};

}  // namespace afd::ops
