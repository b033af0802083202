// SPDX-License-Identifier: Apache-2.0
#pragma once

// LocalBatchedPrepareFinalize: the Batched format within one process.
//
// Dispatch copies a token's row to the next free place of each of its experts, tokens ascending; an
// expert that a token names in several slots gets its row once, so num_dispatchers ·
// max_num_tokens_per_rank places always suffice. An index of slots finds the rows again.

#include <vector>

#include "ops/fused_moe/dispatch_rows.h"
#include "ops/fused_moe/in_process.h"

namespace afd::ops {

class LocalBatchedPrepareFinalize final : public InProcess {
  public:
    // One dispatcher of config.max_num_tokens tokens. `parallel` outlives the object.
    LocalBatchedPrepareFinalize(const FusedMoeConfig& config, Parallel& parallel);

    // max_num_tokens_per_rank is the instance's.
    static constexpr PrepareFinalizeCapability kCapability{
        .name = "local_batched",
        .activation_format = ActivationFormat::kBatched,
        .quantises_dispatch = true,
        .adds_shared_rows = true,
        .reduces = bit(WeightAndReduceKind::kNaiveBatched),
        .delegate = WeightAndReduceKind::kNaiveBatched,
        .num_dispatchers = 1,
    };
    const PrepareFinalizeCapability& capability() const override { return capability_; }

    Result<Ticket> prepare_async(const MoeInput& input, uint32_t slot) override;
    Activations activations(const Ticket& ticket) const override;
    Result<void> finalize(Ticket&& ticket,
                          const TopKWeightAndReduce& reduce,
                          Rows<Bf16> out) override;

  private:
    struct Batch {
        explicit Batch(const FusedMoeConfig& config) : rows(config) {}

        DispatchRows rows;
        std::vector<Bf16> bf16;                  // [num_local_experts, max_num_tokens, hidden], or
        std::vector<int8_t> int8;                // the same quantised, with
        std::vector<float> scale;                // [num_local_experts, max_num_tokens].
        std::vector<int32_t> expert_num_tokens;  // [num_local_experts]
        std::vector<int32_t> row_index;          // [max_num_tokens, top_k + num_shared], -1 masks.
    };

    void index_slots(const MoeInput& input, Batch& batch) const;
    void copy_rows(const MoeInput& input, const ActivationRows& rows, Batch& batch);

    PrepareFinalizeCapability capability_;
    size_t max_num_tokens_;
    size_t num_local_experts_;
    Parallel& parallel_;
    std::vector<Batch> batches_;
};

}  // namespace afd::ops
