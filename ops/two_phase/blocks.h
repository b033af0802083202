// SPDX-License-Identifier: Apache-2.0
#pragma once

// TwoPhaseBlocks: the rows of a sender at its receivers, block by block; what the way there
// (ops/two_phase/payload.h) and the way back (ops/two_phase/combine.h) share.
//
//   the i-th slot of a key, over all blocks in order, has row base[key] + i of the key's rank
//
// A call works on the blocks [first_block, first_block + num_blocks). `done` carries the i of each
// key from call to call; a call over all blocks does without.

#include <cstddef>
#include <cstdint>
#include <span>

#include "ops/tensor/parallel.h"
#include "ops/tensor/workspace.h"
#include "ops/two_phase/routing.h"

namespace afd::ops {

struct TwoPhaseBlocks : TwoPhaseRouting {
    int64_t first_block = 0;
    int64_t num_blocks = -1;  // -1: the rest.

    ConstTensorView sorted_indices = {};  // Of phase 1, as are
    ConstTensorView send_counts = {};     // [num_ranks, num_local_experts] int32
    ConstTensorView base = {};            // [num_ranks, num_local_experts] int64
    TensorView done = {};                 // [num_ranks, num_local_experts] int64, in place
};

// Scratch of a call; the parts serve one after the other.
struct TwoPhaseScratch {
    std::span<uint8_t> held;           // [num_keys]
    std::span<int32_t> key_of_expert;  // [E+S]
    std::span<int64_t> next;           // [num_keys]
};
size_t two_phase_scratch_bytes(const TwoPhaseRouting& routing);
TwoPhaseScratch take_two_phase_scratch(const TwoPhaseRouting& routing, WorkspaceCursor& cursor);

// Attributes and shapes of everything above. REQUIRES: as check_two_phase_routing.
void check_two_phase_blocks(OperatorCheck& check, const TwoPhaseBlocks& blocks);

// Their values: table, grants, indices and progress. `rows_of_rank` says how many rows a rank's
// segment has. Uses all of `scratch`. REQUIRES: check_two_phase_blocks found nothing.
Result<> check_two_phase_values(const OperatorSpec& spec,
                                const TwoPhaseBlocks& blocks,
                                FunctionRef<size_t(size_t rank)> rows_of_rank,
                                const TwoPhaseScratch& scratch);

// counts [num_ranks * num_local_experts] = the block's rows of each key; sorted_indices [N*K1] of
// phase 1 of this routing. `key_of_expert` is scratch for two_phase_num_experts(routing) elements.
// REQUIRES: two_phase_layout took the routing and wrote the indices.
void two_phase_block_counts(const TwoPhaseRouting& routing,
                            const int32_t* sorted_indices,
                            size_t block,
                            std::span<int32_t> key_of_expert,
                            std::span<int32_t> counts);

// One slot on its way.
struct TwoPhasePlace {
    size_t slot = 0;
    int32_t key = 0;
    size_t row = 0;
};

// Walks the blocks of a checked request in order.
class TwoPhaseWalk {
  public:
    TwoPhaseWalk(const TwoPhaseBlocks& blocks, const TwoPhaseScratch& scratch);

    const TwoPhaseSlots& slots() const { return slots_; }
    size_t first_block() const { return first_block_; }
    size_t end_block() const { return end_block_; }

    // Calls body(TwoPhasePlace) for the slots of the block in sorted order, and counts them as
    // done. REQUIRES: the blocks before, from first_block() on, were walked.
    template <typename Body>
    void for_each(size_t block, const Body& body) {
        const size_t last = slots_.first_slot(block + 1);
        for (size_t i = slots_.first_slot(block); i < last && sorted_[i] >= 0; ++i) {
            const auto slot = static_cast<size_t>(sorted_[i]);
            const int32_t key = slots_.key_of(slot);
            body(TwoPhasePlace{slot, key, static_cast<size_t>(next_[key]++)});
        }
    }

    // Writes `done`, if it is given.
    void finish() const;

  private:
    const TwoPhaseBlocks& blocks_;
    TwoPhaseSlots slots_;
    const int32_t* sorted_;
    int64_t* next_;  // base + done
    size_t first_block_;
    size_t end_block_;
};

}  // namespace afd::ops
