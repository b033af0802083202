// SPDX-License-Identifier: Apache-2.0
#pragma once

// LocalPrepareFinalize: the fused-MoE path within one process (colocated mode, tests).
//
// Dispatch renames logical ids to local ones (they are the same here; shared expert j is local
// num_experts + j) and moves no row; combine is the experts' TopKWeightAndReduce.

#include <vector>

#include "ops/fused_moe/prepare_finalize.h"

namespace afd::ops {

class LocalPrepareFinalize final : public PrepareFinalize {
  public:
    // Room for config.num_micro_batches tickets of config.max_num_tokens tokens.
    explicit LocalPrepareFinalize(const FusedMoeConfig& config);

    static constexpr PrepareFinalizeCapability kCapability{
        .name = "local",
        .activation_format = ActivationFormat::kStandard,
        .reduces = bit(WeightAndReduceKind::kNoOp) | bit(WeightAndReduceKind::kContiguous),
    };
    const PrepareFinalizeCapability& capability() const override { return kCapability; }

    Result<Ticket> prepare_async(const MoeInput& input, uint32_t slot) override;
    bool ready(const Ticket& ticket) const override;
    Activations activations(const Ticket& ticket) const override;
    Result<void> finalize_async(const Ticket& ticket, const ExpertsOutput& output) override;
    bool finalized(const Ticket& ticket) const override;
    Result<void> finalize(Ticket&& ticket,
                          const TopKWeightAndReduce& reduce,
                          Rows<Bf16> out) override;
    void cancel(uint32_t slot, uint64_t id) override;

  private:
    struct Slot {
        bool in_use = false;
        bool has_output = false;
        uint64_t id = 0;
        MoeInput input;
        ExpertsOutput output;
        std::vector<LocalExpert> local_ids;  // [max_num_tokens, top_k + num_shared]
    };

    FusedMoeConfig config_;
    uint64_t next_id_ = 1;
    std::vector<Slot> slots_;
};

}  // namespace afd::ops
