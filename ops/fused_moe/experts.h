// SPDX-License-Identifier: Apache-2.0
#pragma once

// Experts: permute, grouped GEMMs, activation, unpermute — the middle part of a fused-MoE layer.
//
// The part declares two workspaces and its output; who runs it (ops::FusedMoe, or an FFN worker's
// loop) allocates them once for the largest call and reuses them. apply() allocates nothing.

#include <cstddef>
#include <span>

#include "ops/fused_moe/activations.h"
#include "ops/fused_moe/capability.h"
#include "ops/tensor/parallel.h"
#include "ops/tensor/stage_profile.h"
#include "ops/tensor/tensor_view.h"
#include "proto/status.h"

namespace afd::ops {

// The largest activations of a caller.
struct ActivationSizes {
    ActivationFormat format = ActivationFormat::kStandard;
    size_t num_rows = 0;   // Standard: tokens; Batched: max_num_tokens; Grouped: rows.
    size_t num_slots = 1;  // Of a token; Standard and Batched.
};

// Bytes of the two workspaces and rows of the output for such a call.
struct WorkspaceShapes {
    size_t workspace13_bytes = 0;  // Permuted rows, and what lives with them.
    size_t workspace2_bytes = 0;   // Between the two GEMMs.
    size_t output_rows = 0;        // [output_rows, hidden] bf16
};

// What a call may use.
struct ExpertsResources {
    std::span<std::byte> workspace13;
    std::span<std::byte> workspace2;
    Parallel* parallel = nullptr;
    StageProfile* profile = nullptr;  // Optional.
};

class Experts {
  public:
    virtual ~Experts() = default;

    // Constant over the object's life.
    virtual const ExpertsCapability& capability() const = 0;

    virtual WorkspaceShapes workspace_shapes(const ActivationSizes& sizes) const = 0;

    // Runs the experts over `activations` and writes every unmasked row of `output`
    // (see ExpertsOutput); other rows are untouched. REQUIRES: a format of the record.
    // Errors: kInvalidArgument: a layer, local id or key that has no expert here.
    virtual Result<> apply(const Activations& activations,
                           Rows<Bf16> output,
                           const ExpertsResources& resources) = 0;
};

// Stands where the experts run in other processes; pairs with a PrepareFinalize that is remote.
class RemoteExperts final : public Experts {
  public:
    // `workers`: the record of the part that the other processes run; it outlives the object.
    explicit RemoteExperts(const ExpertsCapability& workers);

    const ExpertsCapability& capability() const override { return capability_; }
    WorkspaceShapes workspace_shapes(const ActivationSizes& sizes) const override;
    Result<> apply(const Activations& activations,
                   Rows<Bf16> output,
                   const ExpertsResources& resources) override;

  private:
    ExpertsCapability capability_;
};

}  // namespace afd::ops
