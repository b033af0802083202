// SPDX-License-Identifier: Apache-2.0
#pragma once

// TwoPhaseCombine: the way back of the two-phase dispatch, in blocks of tokens.
//
//   y[n] = sum over k of row(n, k)·expert_scales[n, k] + sum over j of row(n, K + j)
//          (+ sum over j of shared_rows[n, j], where shared experts were not dispatched)
//   row(f) = recv_y[base[rank, e] + i], f the i-th slot of (rank, e) in sorted_indices
//
// The arithmetic is that of ops/experts/combine.h: k ascending, whatever order the rows lie in, so
// the bits do not depend on the block size. A token without any sent slot gets zeros. Only the
// tokens of the blocks asked for are written. Source: docs/specification.md, sections 5 and 7.
//
// Blocks and done: ops/two_phase/blocks.h; done is another one than that of the way there.

#include <cstddef>
#include <cstdint>
#include <span>

#include "ops/record/operator_spec.h"
#include "ops/tensor/parallel.h"
#include "ops/tensor/tensor_view.h"
#include "ops/two_phase/blocks.h"
#include "proto/status.h"

namespace afd::ops {

struct TwoPhaseCombineRequest;
extern const RecordOf<TwoPhaseCombineRequest> kTwoPhaseCombineSpec;

struct TwoPhaseCombineRequest : TwoPhaseBlocks {
    ConstTensorView expert_scales = {};  // [N, K] fp32

    // One buffer for all ranks; or, from C++, the rows of each rank in `senders` [num_ranks], and
    // recv_y is not given.
    ConstTensorView recv_y = {};  // [P, H] fp16 or bf16
    std::span<const ConstTensorView> senders = {};
    // From C++: rows of shared experts that ran beside the dispatch, instead of shared_expert_num.
    // Those of the blocks asked for are read.
    ConstTensorView shared_rows = {};  // [N, J, H], dtype of the rows

    TensorView y = {};  // [N, H], dtype of the rows

    // The rows of a rank, however they are given.
    ConstTensorView rows_of(size_t rank) const { return senders.empty() ? recv_y : senders[rank]; }
};

// The request with y as a contiguous view without data. Looks at attributes and inputs only.
// Errors: kInvalidArgument.
Result<TwoPhaseCombineRequest> with_output_shapes(const TwoPhaseCombineRequest& request);

// Everything that a request can be refused for.
Result<> check_two_phase_combine(const TwoPhaseCombineRequest& request,
                                 const TwoPhaseScratch& scratch);

size_t two_phase_combine_workspace_bytes(const TwoPhaseCombineRequest& request);

// Errors: kInvalidArgument; then nothing was written. Bits do not depend on the threads.
Result<> two_phase_combine(const TwoPhaseCombineRequest& request,
                           std::span<std::byte> workspace,
                           Parallel& parallel);

}  // namespace afd::ops
