// SPDX-License-Identifier: Apache-2.0
#pragma once

// Experts: permute, grouped GEMMs, activation, unpermute — the middle part of a fused-MoE layer.
//
// The part declares two workspaces and its output; the driver allocates them once for the largest
// call and reuses them. apply() allocates nothing.

#include <cstddef>
#include <span>

#include "ops/fused_moe/activations.h"
#include "ops/fused_moe/capability.h"
#include "ops/parallel.h"
#include "ops/tensor_view.h"
#include "proto/status.h"

namespace afd::ops {

// Bytes of the two workspaces and rows of the output for a call of at most `num_tokens` tokens.
struct WorkspaceShapes {
    size_t workspace13_bytes = 0;  // Permuted rows, and what lives with them.
    size_t workspace2_bytes = 0;   // Between the two GEMMs.
    size_t output_rows = 0;        // [output_rows, hidden] bf16
};

struct ExpertsWorkspaces {
    std::span<std::byte> workspace13;
    std::span<std::byte> workspace2;
};

class Experts {
  public:
    virtual ~Experts() = default;

    // Constant over the object's life.
    virtual const ExpertsCapability& capability() const = 0;

    // What apply needs for num_tokens tokens of num_slots slots each.
    virtual WorkspaceShapes workspace_shapes(size_t num_tokens, size_t num_slots) const = 0;

    // Runs the experts over `activations` and writes every unmasked row of `output`
    // (see ExpertsOutput); rows of masked slots are untouched.
    // Errors: kInvalidArgument: a layer or local id that has no expert here.
    virtual Result<void> apply(const Activations& activations,
                               Rows<Bf16> output,
                               const ExpertsWorkspaces& workspaces,
                               Parallel& parallel) = 0;
};

// Stands where the experts run in other processes; pairs with a kRemote PrepareFinalize.
class RemoteExperts final : public Experts {
  public:
    const ExpertsCapability& capability() const override;
    WorkspaceShapes workspace_shapes(size_t num_tokens, size_t num_slots) const override;
    Result<void> apply(const Activations& activations,
                       Rows<Bf16> output,
                       const ExpertsWorkspaces& workspaces,
                       Parallel& parallel) override;
};

}  // namespace afd::ops
