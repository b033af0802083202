// SPDX-License-Identifier: Apache-2.0
#pragma once

// TwoPhaseLayout: phase 1 of the two-phase dispatch, from the expert ids alone.
//
//   sorted_indices of block b = stable ascending sort of the block's slots f by key(f)
//   send_counts[rank, e] = number of slots with that key; send_offsets their exclusive prefix sums
//
// Slots, keys and blocks: ops/two_phase/routing.h. No sort goes beyond a block, so a million tokens
// cost the scratch of one block. Masked ids and tokens that active_mask leaves out are not sent;
// shared experts get every active token. Source: the seed document two_phase_dispatch and
// docs/specification.md, section 7.
//
// Outputs:
//   sorted_indices [N·K1] int32, 4 bytes a slot: the part of block b begins at its first slot and
//     holds its slots in order, then -1 up to the next block.
//   send_counts [num_ranks, num_local_experts] int32, what the receivers are told.
//   send_offsets [num_ranks, num_local_experts] int64: of a send buffer sorted by key.

#include <cstddef>
#include <cstdint>
#include <span>

#include "ops/record/operator_spec.h"
#include "ops/tensor/parallel.h"
#include "ops/tensor/tensor_view.h"
#include "ops/two_phase/routing.h"
#include "proto/status.h"

namespace afd::ops {

struct TwoPhaseLayoutRequest;
extern const RecordOf<TwoPhaseLayoutRequest> kTwoPhaseLayoutSpec;

struct TwoPhaseLayoutRequest : TwoPhaseRouting {
    ConstTensorView active_mask = {};  // [N] bool; not given: all active

    TensorView sorted_indices = {};
    TensorView send_counts = {};
    TensorView send_offsets = {};  // Optional.
};

// What a request can be refused for whatever values its tensors hold.
Result<> check_two_phase_layout_shapes(const TwoPhaseLayoutRequest& request);

// Everything that a request can be refused for; `held` as in check_two_phase_table.
Result<> check_two_phase_layout(const TwoPhaseLayoutRequest& request, std::span<uint8_t> held);

size_t two_phase_layout_workspace_bytes(const TwoPhaseLayoutRequest& request, unsigned num_threads);

// Errors: kInvalidArgument; then nothing was written. Cost: linear in the slots, plus blocks ·
// num_ranks · num_local_experts. The outputs do not depend on the threads.
Result<> two_phase_layout(const TwoPhaseLayoutRequest& request,
                          std::span<std::byte> workspace,
                          Parallel& parallel);

}  // namespace afd::ops
