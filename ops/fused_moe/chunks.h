// SPDX-License-Identifier: Apache-2.0
#pragma once

// Activations in pieces, so that the experts' workspaces need hold one piece only. A row depends on
// itself and its expert, so pieces change no bit.

#include <cstddef>
#include <span>

#include "ops/fused_moe/activations.h"
#include "ops/fused_moe/experts.h"

namespace afd::ops {

// `max_tokens` tokens at a time, at least one. Errors: those of Experts::apply, of the first piece
// that has one.
Result<> apply_in_chunks(Experts& experts,
                         const StandardActivations& standard,
                         size_t max_tokens,
                         Rows<Bf16> output,
                         const ExpertsResources& resources);

// `max_rows` rows at a time, 1 ... INT64_MAX, groups cut where a piece ends. `scratch` holds the
// groups of a piece: as many as there are keys.
Result<> apply_in_chunks(Experts& experts,
                         const GroupedActivations& grouped,
                         size_t max_rows,
                         std::span<ExpertGroup> scratch,
                         Rows<Bf16> output,
                         const ExpertsResources& resources);

}  // namespace afd::ops
