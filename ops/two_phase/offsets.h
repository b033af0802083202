// SPDX-License-Identifier: Apache-2.0
#pragma once

// TwoPhaseOffsets: between the phases; what every receiver allocates and grants.
//
//   group_list[rank, e] = sum over senders s of send_counts[s, rank, e]
//   recv_total[rank] = sum over e of group_list[rank, e]: the exact rows of the rank's segment
//   base[s, rank, e] = rows of the rank before (e, s), in the order local expert, then sender
//
// Rows written at base + 0, 1, ... in (token, k) order thus lie as a single-pass dispatch of all
// senders would have put them. One count per rank, as the seed exchanges, sizes the segment but
// cannot rebuild this order. Source: the seed document two_phase_dispatch and
// docs/specification.md, section 7.

#include <cstddef>
#include <span>

#include "ops/record/operator_spec.h"
#include "ops/tensor/parallel.h"
#include "ops/tensor/tensor_view.h"
#include "proto/status.h"

namespace afd::ops {

struct TwoPhaseOffsetsRequest;
extern const RecordOf<TwoPhaseOffsetsRequest> kTwoPhaseOffsetsSpec;

struct TwoPhaseOffsetsRequest {
    // False: base counts from the start of a rank's own segment. True: the segments of all ranks
    // lie one behind the other in one buffer, and base counts from its start.
    bool one_buffer = false;

    ConstTensorView send_counts = {};  // [A, F, E] int32: senders, ranks, local experts

    TensorView base = {};         // [A, F, E] int64
    TensorView recv_counts = {};  // [F, A] int64, optional: rows that a rank gets of each sender
    TensorView recv_total = {};   // [F] int64
    TensorView group_list = {};   // [F, E] int64, optional: a rank's rows of each local expert
};

// Everything that a request can be refused for.
Result<> check_two_phase_offsets(const TwoPhaseOffsetsRequest& request);

// Needs no scratch.
constexpr size_t two_phase_offsets_workspace_bytes() {
    return 0;
}

// Errors: kInvalidArgument; then nothing was written.
Result<> two_phase_offsets(const TwoPhaseOffsetsRequest& request,
                           std::span<std::byte> workspace,
                           Parallel& parallel);

}  // namespace afd::ops
