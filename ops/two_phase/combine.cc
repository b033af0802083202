// SPDX-License-Identifier: Apache-2.0

#include "ops/two_phase/combine.h"

#include <algorithm>

#include "ops/experts/combine.h"

namespace afd::ops {
namespace {

// The tokens of one block. `row_address` has an entry for every slot of it.
template <typename T>
void combine_block(const TwoPhaseCombineRequest& r,
                   const TwoPhaseSlots& slots,
                   size_t block,
                   const std::byte* const* row_address,
                   Parallel& parallel) {
    const size_t hidden = r.y.shape[1];
    const size_t first_token = slots.first_token(block);
    const size_t num_tokens = slots.first_token(block + 1) - first_token;
    BasicCombineRequest<T> request;
    request.num_tokens = num_tokens;
    request.top_k = slots.top_k();
    request.num_shared = slots.slots_per_token() - slots.top_k();
    if (r.shared_rows.rank == 3) {
        request.num_shared = r.shared_rows.shape[1];
        request.shared_rows = make_rows(
            static_cast<const T*>(r.shared_rows.data) + first_token * request.num_shared * hidden,
            num_tokens * request.num_shared,
            hidden);
    }
    request.topk_weights =
        static_cast<const float*>(r.expert_scales.data) + first_token * slots.top_k();
    request.row_address = row_address;
    request.out = make_rows(static_cast<T*>(r.y.data) + first_token * hidden, num_tokens, hidden);
    combine(request, parallel);
}

}  // namespace

size_t two_phase_combine_workspace_bytes(const TwoPhaseCombineRequest& request) {
    return two_phase_scratch_bytes(request) +
           workspace_bytes_of<const std::byte*>(two_phase_block_slots(request));
}

Result<> two_phase_combine(const TwoPhaseCombineRequest& request,
                           std::span<std::byte> workspace,
                           Parallel& parallel) {
    WorkspaceCursor cursor(workspace);
    const TwoPhaseScratch scratch = take_two_phase_scratch(request, cursor);
    AFD_TRY(check_two_phase_combine(request, scratch));
    TwoPhaseWalk walk(request, scratch);
    const TwoPhaseSlots& slots = walk.slots();
    const size_t row_bytes = request.y.shape[1] * size_of(request.y.dtype);
    auto** row_address = cursor.take<const std::byte*>(slots.block_slots());
    for (size_t block = walk.first_block(); block < walk.end_block(); ++block) {
        const size_t first_slot = slots.first_slot(block);
        // Masked slots have no row, and a null address leaves them out of the sum.
        std::fill_n(row_address, slots.first_slot(block + 1) - first_slot, nullptr);
        walk.for_each(block, [&](const TwoPhasePlace& place) {
            const size_t rank = static_cast<size_t>(place.key) / slots.num_local_experts();
            const auto* rows = static_cast<const std::byte*>(request.rows_of(rank).data);
            // Addresses instead of a copy: a token's rows lie in the segments of several ranks.
            row_address[place.slot - first_slot] = rows + place.row * row_bytes;
        });
        if (request.y.dtype == DType::kFp16) {
            combine_block<Fp16>(request, slots, block, row_address, parallel);
        } else {
            combine_block<Bf16>(request, slots, block, row_address, parallel);
        }
    }
    walk.finish();
    return {};
}

}  // namespace afd::ops
