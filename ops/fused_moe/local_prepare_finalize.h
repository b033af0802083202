// SPDX-License-Identifier: Apache-2.0
#pragma once

// LocalPrepareFinalize: the fused-MoE path within one process (colocated mode, tests).
//
// Dispatch renames logical ids to local ones (they are the same here; shared expert j is local
// num_experts + j) and moves no row; combine is the experts' TopKWeightAndReduce.

#include <vector>

#include "ops/fused_moe/dispatch_rows.h"
#include "ops/fused_moe/in_process.h"

namespace afd::ops {

class LocalPrepareFinalize final : public InProcess {
  public:
    // Room for config.num_micro_batches tickets of config.max_num_tokens tokens. `parallel`
    // outlives the object.
    LocalPrepareFinalize(const FusedMoeConfig& config, Parallel& parallel);

    static constexpr PrepareFinalizeCapability kCapability{
        .name = "local",
        .activation_format = ActivationFormat::kStandard,
        .quantises_dispatch = true,
        .adds_shared_rows = true,
        .reduces = bit(WeightAndReduceKind::kNoOp) | bit(WeightAndReduceKind::kContiguous),
        .delegate = WeightAndReduceKind::kContiguous,
    };
    const PrepareFinalizeCapability& capability() const override { return kCapability; }

    Result<Ticket> prepare_async(const MoeInput& input, uint32_t slot) override;
    Activations activations(const Ticket& ticket) const override;
    Result<void> finalize(Ticket&& ticket,
                          const TopKWeightAndReduce& reduce,
                          Rows<Bf16> out) override;

  private:
    struct Rename {
        explicit Rename(const FusedMoeConfig& config) : rows(config) {}

        DispatchRows rows;
        ActivationRows x;
        std::vector<LocalExpert> local_ids;  // [max_num_tokens, top_k + num_shared]
        std::vector<float> weights;          // The same, 1 for a shared slot.
    };

    Parallel& parallel_;
    std::vector<Rename> slots_;
};

}  // namespace afd::ops
