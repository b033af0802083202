// SPDX-License-Identifier: Apache-2.0
#pragma once

// two_phase_payload: phase 2 of the two-phase dispatch, the rows.
//
//   recv_x[base[rank, e] + i] = op(x[f div K1]), f the i-th slot of (rank, e) in sorted_indices
//
// op copies, or quantises to int8 (ops/linear/quantise.h) with the smooth scale of the slot's
// logical expert; recv_scale then gets the row's scale. With the grants of two_phase_offsets a
// receiver's rows end up by local expert, then sender, then (token, k): as one pass over all tokens
// would have written them, whatever the blocks. Masked slots are not sent. Rows that are not this
// sender's are untouched. Source: the seed document two_phase_dispatch and
// docs/specification.md, section 7.
//
// Blocks and done: ops/two_phase/blocks.h. Grants that overlap are refused.

#include <cstddef>
#include <cstdint>
#include <span>

#include "ops/record/operator_spec.h"
#include "ops/tensor/parallel.h"
#include "ops/tensor/tensor_view.h"
#include "ops/two_phase/blocks.h"
#include "proto/status.h"

namespace afd::ops {

struct TwoPhasePayloadRequest;
extern const RecordOf<TwoPhasePayloadRequest> kTwoPhasePayloadSpec;

// The segment of one rank.
struct TwoPhaseReceiveBuffer {
    TensorView recv_x = {};      // [P, H], P of its own
    TensorView recv_scale = {};  // [P] fp32, with quant_mode 1
};

// Writes the row of a slot, which depends on its expert, instead of a copy of x.
class TwoPhaseRowWriter {
  public:
    virtual ~TwoPhaseRowWriter() = default;
    // `row`: as many bytes as a row of x. Called by several threads at once.
    virtual void write(size_t token, size_t expert, std::byte* row) const = 0;
};

struct TwoPhasePayloadRequest : TwoPhaseBlocks {
    int64_t quant_mode = -1;  // -1 rows as they are, 1 int8 by dynamic quantisation

    ConstTensorView x = {};       // [N, H] fp32, fp16 or bf16
    ConstTensorView scales = {};  // [L, E+S, H] fp32 smooth scales, optional, with quant_mode 1

    // One buffer for all ranks; or, from C++, `receivers` [num_ranks], and these are not given.
    TensorView recv_x = {};      // [P, H] dtype of x, or int8
    TensorView recv_scale = {};  // [P] fp32, with quant_mode 1
    std::span<const TwoPhaseReceiveBuffer> receivers = {};
    // From C++, with quant_mode -1: then x is not read.
    const TwoPhaseRowWriter* row_writer = nullptr;

    // The segment of a rank, however it is given.
    TwoPhaseReceiveBuffer receiver_of(size_t rank) const {
        return receivers.empty() ? TwoPhaseReceiveBuffer{recv_x, recv_scale} : receivers[rank];
    }
};

// What a request can be refused for whatever values its tensors hold.
Result<> check_two_phase_payload_shapes(const TwoPhasePayloadRequest& request);

// Everything that a request can be refused for.
Result<> check_two_phase_payload(const TwoPhasePayloadRequest& request,
                                 const TwoPhaseScratch& scratch);

size_t two_phase_payload_workspace_bytes(const TwoPhasePayloadRequest& request);

// Errors: kInvalidArgument; then nothing was written. Bits do not depend on the threads.
Result<> two_phase_payload(const TwoPhasePayloadRequest& request,
                           std::span<std::byte> workspace,
                           Parallel& parallel);

}  // namespace afd::ops
