// SPDX-License-Identifier: Apache-2.0

#include "ops/two_phase/blocks.h"

#include <string>

namespace afd::ops {
namespace {

const int64_t* base_of(const TwoPhaseBlocks& b) {
    return static_cast<const int64_t*>(b.base.data);
}

const int32_t* counts_of(const TwoPhaseBlocks& b) {
    return static_cast<const int32_t*>(b.send_counts.data);
}

// Rows of the blocks before; null: none.
int64_t* done_of(const TwoPhaseBlocks& b) {
    return b.done.num_elements() == 0 ? nullptr : static_cast<int64_t*>(b.done.data);
}

size_t end_block_of(const TwoPhaseBlocks& b, const TwoPhaseSlots& slots) {
    return b.num_blocks < 0 ? slots.num_blocks()
                            : static_cast<size_t>(b.first_block + b.num_blocks);
}

std::string at(const char* name, size_t key, const TwoPhaseBlocks& b) {
    const auto num_local_experts = static_cast<size_t>(b.num_local_experts);
    return fmt::format("{}[{}, {}]", name, key / num_local_experts, key % num_local_experts);
}

// Grants inside the segments, and progress within the counts; then next[key] = done.
void check_grants(OperatorCheck& check,
                  const TwoPhaseBlocks& b,
                  FunctionRef<size_t(size_t)> rows_of_rank,
                  std::span<int64_t> next) {
    const int64_t* done = done_of(b);
    for (size_t key = 0; key < next.size(); ++key) {
        next[key] = done == nullptr ? 0 : done[key];
        const int64_t count = counts_of(b)[key];
        if (count < 0) {
            check.require(
                false, "{} is {}; it must not be negative", with(at("send_counts", key, b), count));
        }
        if (next[key] < 0 || next[key] > std::max<int64_t>(count, 0)) {
            check.require(false,
                          "{} is {}; it must be 0 to send_counts, {}",
                          with(at("done", key, b), next[key], count));
        }
        const auto num_rows =
            static_cast<int64_t>(rows_of_rank(key / static_cast<size_t>(b.num_local_experts)));
        const int64_t base = base_of(b)[key];
        // The grants are another process's numbers, and rows are written at them: subtracted, so
        // that nothing can wrap.
        if (count > 0 && (base < 0 || base > num_rows || count > num_rows - base)) {
            check.require(false,
                          "{} is {}; {} rows must fit into the rank's {}",
                          with(at("base", key, b), base, count, num_rows));
        }
    }
}

// Every index a slot of its block, and no key with more rows than it has counts.
void check_indices(OperatorCheck& check,
                   const TwoPhaseBlocks& b,
                   const TwoPhaseSlots& slots,
                   std::span<int64_t> next) {
    const auto* sorted = static_cast<const int32_t*>(b.sorted_indices.data);
    for (size_t block = static_cast<size_t>(b.first_block); block < end_block_of(b, slots);
         ++block) {
        const size_t first = slots.first_slot(block);
        const size_t last = slots.first_slot(block + 1);
        // Indices came from two_phase_layout, but through the caller's memory; a wrong one would
        // write outside a segment. The first -1 ends a block.
        int32_t last_key = -1;
        for (size_t i = first; i < last && sorted[i] != -1; ++i) {
            const auto slot = static_cast<size_t>(sorted[i]);
            const bool is_inside = sorted[i] >= 0 && slot >= first && slot < last;
            const int32_t key = is_inside ? slots.key_of(slot) : -1;
            const std::string is =
                key >= 0 ? "" : fmt::format("sorted_indices[{}] is {}", i, sorted[i]);
            if (!is_inside) {
                return check.require(false,
                                     "{}; it must be -1 or a slot of its block, {} to {}",
                                     with(is, first, last - 1));
            }
            if (key < 0) return check.require(false, "{}, a masked slot", with(is));
            // The order of phase 1, which lists no slot twice.
            if (key < last_key || (key == last_key && sorted[i] <= sorted[i - 1])) {
                return check.require(
                    false,
                    "sorted_indices[{}] is {} behind {}; slots ascend by place of their expert, "
                    "then by number, and none is listed twice",
                    with(i, sorted[i], sorted[i - 1]));
            }
            last_key = key;
            if (++next[static_cast<size_t>(key)] <= counts_of(b)[key]) continue;
            return check.require(
                false,
                "{} is {}; sorted_indices has more rows for it",
                with(at("send_counts", static_cast<size_t>(key), b), counts_of(b)[key]));
        }
    }
}

}  // namespace

size_t two_phase_scratch_bytes(const TwoPhaseRouting& routing) {
    const size_t num_keys = two_phase_num_keys(routing);
    return workspace_bytes_of<uint8_t>(num_keys) +
           workspace_bytes_of<int32_t>(two_phase_num_experts(routing)) +
           workspace_bytes_of<int64_t>(num_keys);
}

TwoPhaseScratch take_two_phase_scratch(const TwoPhaseRouting& routing, WorkspaceCursor& cursor) {
    const size_t num_keys = two_phase_num_keys(routing);
    const size_t num_experts = two_phase_num_experts(routing);
    auto* held = cursor.take<uint8_t>(num_keys);
    auto* key_of_expert = cursor.take<int32_t>(num_experts);
    auto* next = cursor.take<int64_t>(num_keys);
    return {{held, num_keys}, {key_of_expert, num_experts}, {next, num_keys}};
}

void check_two_phase_blocks(OperatorCheck& check, const TwoPhaseBlocks& b) {
    check_two_phase_routing(check, b);
    for (const char* name : {"sorted_indices", "send_counts", "base", "done"}) check.tensor(name);
    if (b.block_size < 1 || b.expert_ids.rank != 2) return;
    const auto num_tokens = static_cast<int64_t>(b.expert_ids.shape[0]);
    const int64_t num_blocks = num_tokens / b.block_size + (num_tokens % b.block_size != 0);
    check.require(b.first_block <= num_blocks,
                  "first_block is {}; there are {} blocks",
                  with(b.first_block, num_blocks));
    check.require(b.num_blocks <= num_blocks - b.first_block,
                  "num_blocks is {} from first_block {}; there are {} blocks",
                  with(b.num_blocks, b.first_block, num_blocks));
    check.require(b.first_block == 0 || done_of(b) != nullptr,
                  "first_block is {}; above 0 done is needed",
                  with(b.first_block));
}

Result<> check_two_phase_values(const OperatorSpec& spec,
                                const TwoPhaseBlocks& b,
                                FunctionRef<size_t(size_t)> rows_of_rank,
                                const TwoPhaseScratch& scratch) {
    AFD_TRY(check_two_phase_table(spec, b, scratch.held));
    OperatorCheck check(spec);
    check_grants(check, b, rows_of_rank, scratch.next);
    AFD_TRY(check.finish());
    const TwoPhaseSlots slots(b, scratch.key_of_expert.data());
    check_indices(check, b, slots, scratch.next);
    return check.finish();
}

void two_phase_block_counts(const TwoPhaseRouting& routing,
                            const int32_t* sorted_indices,
                            size_t block,
                            std::span<int32_t> key_of_expert,
                            std::span<int32_t> counts) {
    const TwoPhaseSlots slots(routing, key_of_expert.data());
    std::fill(counts.begin(), counts.end(), 0);
    const size_t last = slots.first_slot(block + 1);
    for (size_t i = slots.first_slot(block); i < last && sorted_indices[i] >= 0; ++i) {
        ++counts[static_cast<size_t>(slots.key_of(static_cast<size_t>(sorted_indices[i])))];
    }
}

TwoPhaseWalk::TwoPhaseWalk(const TwoPhaseBlocks& blocks, const TwoPhaseScratch& scratch)
    : blocks_(blocks),
      slots_(blocks, scratch.key_of_expert.data()),
      sorted_(static_cast<const int32_t*>(blocks.sorted_indices.data)),
      next_(scratch.next.data()),
      first_block_(static_cast<size_t>(blocks.first_block)),
      end_block_(end_block_of(blocks, slots_)) {
    const int64_t* done = done_of(blocks);
    for (size_t key = 0; key < scratch.next.size(); ++key) {
        // A block's rows of a key follow those of the blocks before it, so that block by block they
        // lie as a dispatch in one pass would have put them.
        next_[key] = base_of(blocks)[key] + (done == nullptr ? 0 : done[key]);
    }
}

void TwoPhaseWalk::finish() const {
    int64_t* done = done_of(blocks_);
    if (done == nullptr) return;
    for (size_t key = 0; key < slots_.num_keys(); ++key)
        done[key] = next_[key] - base_of(blocks_)[key];
}

}  // namespace afd::ops
