// SPDX-License-Identifier: Apache-2.0
#pragma once

// LocalBatchedPrepareFinalize: the Batched format within one process.
//
// Dispatch copies a token's row to the next free place of each of its experts, tokens ascending; an
// expert that a token names in several slots gets its row once, so num_dispatchers ·
// max_num_tokens_per_rank places suffice in the worst case; config.row_fraction may reserve fewer.
// An index of slots finds the rows again.

#include <vector>

#include "ops/fused_moe/dispatch_rows.h"
#include "ops/fused_moe/parts/in_process.h"

namespace afd::ops {

class LocalBatchedPrepareFinalize final : public InProcess {
  public:
    // One dispatcher of config.max_num_tokens tokens. `parallel` outlives the object.
    LocalBatchedPrepareFinalize(const FusedMoeConfig& config, Parallel& parallel);

    // max_num_tokens_per_rank is the instance's.
    static constexpr PrepareFinalizeCapability kCapability{
        .name = "local_batched",
        .activation_format = ActivationFormat::kBatched,
        .dispatch_dtypes = bit(RowDtype::kBf16) | bit(RowDtype::kInt8) | bit(RowDtype::kFp8),
        .adds_shared_rows = true,
        .knows_weights = true,
        .reduces = bit(WeightAndReduceKind::kNaiveBatched),
        .delegate = WeightAndReduceKind::kNaiveBatched,
        .shares_layouts = true,
        .defers_finalize = true,
        .bounds_rows = true,
        .num_dispatchers = 1,
    };
    // What the constructor reserves.
    static InProcessMemory memory(const FusedMoeConfig& config);

    Activations activations(const Ticket& ticket) const override;

  private:
    struct Layout {
        int32_t* expert_num_tokens;  // [num_local_experts]
        int32_t* row_index;          // [num_tokens, top_k + num_shared], -1 masks.
        size_t num_rows;
    };
    struct Batch {
        DispatchRows rows;
        Bf16* bf16;    // [num_local_experts, places, hidden], or
        int8_t* int8;  // the same quantised, with
        float* scale;  // [num_local_experts, places].
    };

    Result<> lay_out(const MoeInput& input, size_t index) override;
    Result<> send(const MoeInput& input, size_t slot, size_t index) override;
    const int32_t* row_index(size_t layout) const override { return layouts_[layout].row_index; }
    Count num_rows(size_t layout) const override { return Count(layouts_[layout].num_rows); }
    const int32_t* expert_counts(size_t layout) const override {
        return layouts_[layout].expert_num_tokens;
    }
    size_t num_places() const { return num_local_experts_ * bounds().places.value(); }

    size_t num_local_experts_;
    Parallel& parallel_;
    std::vector<Layout> layouts_;
    std::vector<Batch> batches_;
};

}  // namespace afd::ops
