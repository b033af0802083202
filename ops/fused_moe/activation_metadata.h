// SPDX-License-Identifier: Apache-2.0
#pragma once

// ActivationMetadata: how many rows the experts get, by source and by expert. Every
// PrepareFinalize that hands over activations gives all of it; the driver checks it against the
// activations once, before the experts run. For load statistics and schedulers.

#include <cstdint>
#include <span>

#include "ops/fused_moe/activations.h"

namespace afd::ops {

struct ActivationMetadata {
    Count total;  // Rows that the experts compute. Standard: valid slots; the others: rows.
    // [num_local_experts] of the layer: the rows of each; they sum up to total.
    std::span<const int32_t> expert_counts;
    // [num_sources + 1], ascending from 0 to total: the rows of source s, in order of arrival, are
    // those from its entry to the next. Within one process there is one source.
    std::span<const int32_t> source_prefix;
};

// Asserts that the metadata is complete and agrees with itself and with the activations.
// REQUIRES: not RemoteActivations.
void assert_consistent(const ActivationMetadata& metadata, const Activations& activations);

}  // namespace afd::ops
