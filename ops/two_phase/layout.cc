// SPDX-License-Identifier: Apache-2.0

#include "ops/two_phase/layout.h"

#include <algorithm>

#include "ops/tensor/workspace.h"

namespace afd::ops {
namespace {

// Slots that one task sorts, at least: about 30 us of work.
constexpr size_t kSlotsPerTask = size_t{1} << 14;
// Up to so many slots are sorted by insertion, which needs no table of counts.
constexpr size_t kInsertionMax = 32;

class BlockSort {
  public:
    BlockSort(const TwoPhaseLayoutRequest& r, const TwoPhaseSlots& slots)
        : slots_(slots),
          mask_(r.active_mask.num_elements() == 0 ? nullptr
                                                  : static_cast<const bool*>(r.active_mask.data)),
          sorted_(static_cast<int32_t*>(r.sorted_indices.data)) {}

    // Adds the block's counts to `counts`; `next` is scratch of num_keys elements.
    void sort_block(size_t block, int32_t* counts, int32_t* next) const {
        const size_t first = slots_.first_slot(block);
        const size_t last = slots_.first_slot(block + 1);
        // Both ways are stable and give the same order; which one is taken depends on the block's
        // size alone.
        const size_t end = last - first <= kInsertionMax ? insert_slots(block, counts)
                                                         : count_and_place(block, counts, next);
        std::fill(sorted_ + end, sorted_ + last, -1);
    }

  private:
    // Calls body(slot, key) for every slot of the block that is sent, ascending.
    template <typename Body>
    void for_each(size_t block, const Body& body) const {
        const size_t last = slots_.first_token(block + 1);
        for (size_t token = slots_.first_token(block); token < last; ++token) {
            if (mask_ == nullptr || mask_[token]) slots_.for_each_of_token(token, body);
        }
    }

    size_t insert_slots(size_t block, int32_t* counts) const {
        int32_t keys[kInsertionMax];
        const size_t first = slots_.first_slot(block);
        size_t count = 0;
        for_each(block, [&](size_t slot, int32_t key) {
            size_t at = count++;
            for (; at > 0 && keys[at - 1] > key; --at) {
                keys[at] = keys[at - 1];
                sorted_[first + at] = sorted_[first + at - 1];
            }
            keys[at] = key;
            sorted_[first + at] = static_cast<int32_t>(slot);
            ++counts[key];
        });
        return first + count;
    }

    size_t count_and_place(size_t block, int32_t* counts, int32_t* next) const {
        std::fill_n(next, slots_.num_keys(), 0);
        for_each(block, [&](size_t, int32_t key) { ++next[key]; });
        auto start = static_cast<int32_t>(slots_.first_slot(block));
        for (size_t key = 0; key < slots_.num_keys(); ++key) {
            const int32_t count = next[key];
            counts[key] += count;
            next[key] = start;
            start += count;
        }
        for_each(block, [&](size_t slot, int32_t key) {
            sorted_[next[key]++] = static_cast<int32_t>(slot);
        });
        return static_cast<size_t>(start);
    }

    const TwoPhaseSlots& slots_;
    const bool* mask_;
    int32_t* sorted_;
};

// Sums the threads' counts into the outputs.
void write_counts(const TwoPhaseLayoutRequest& r,
                  const int32_t* counts,
                  size_t num_keys,
                  size_t num_threads) {
    auto* send_counts = static_cast<int32_t*>(r.send_counts.data);
    auto* send_offsets = static_cast<int64_t*>(r.send_offsets.data);
    int64_t offset = 0;
    for (size_t key = 0; key < num_keys; ++key) {
        int32_t count = 0;
        for (size_t thread = 0; thread < num_threads; ++thread) {
            count += counts[thread * num_keys + key];
        }
        send_counts[key] = count;
        if (r.send_offsets.num_elements() > 0) send_offsets[key] = offset;
        offset += count;
    }
}

}  // namespace

size_t two_phase_layout_workspace_bytes(const TwoPhaseLayoutRequest& r, unsigned num_threads) {
    const size_t num_keys = two_phase_num_keys(r);
    return workspace_bytes_of<uint8_t>(num_keys) +
           workspace_bytes_of<int32_t>(two_phase_num_experts(r)) +
           2 * workspace_bytes_of<int32_t>(num_keys * num_threads);
}

Result<> two_phase_layout(const TwoPhaseLayoutRequest& request,
                          std::span<std::byte> workspace,
                          Parallel& parallel) {
    const size_t num_keys = two_phase_num_keys(request);
    const size_t num_threads = parallel.num_threads();
    WorkspaceCursor cursor(workspace);
    auto* held = cursor.take<uint8_t>(num_keys);
    auto* key_of_expert = cursor.take<int32_t>(two_phase_num_experts(request));
    // Counts of each thread's own: one table for all would bounce its lines between the cores.
    auto* counts = cursor.take<int32_t>(num_keys * num_threads);
    auto* next = cursor.take<int32_t>(num_keys * num_threads);
    AFD_TRY(check_two_phase_layout(request, {held, num_keys}));
    const TwoPhaseSlots slots(request, key_of_expert);
    const BlockSort sorting(request, slots);
    std::fill_n(counts, num_keys * num_threads, 0);
    const size_t num_blocks = slots.num_blocks();
    const size_t blocks_per_task = kSlotsPerTask / std::max<size_t>(slots.block_slots(), 1) + 1;
    const auto sort = [&](size_t task, unsigned thread) {
        const size_t last = std::min(num_blocks, (task + 1) * blocks_per_task);
        for (size_t block = task * blocks_per_task; block < last; ++block) {
            sorting.sort_block(block, counts + thread * num_keys, next + thread * num_keys);
        }
    };
    const size_t num_tasks = (num_blocks + blocks_per_task - 1) / blocks_per_task;
    // A hand-over costs more than a small batch takes to sort.
    if (num_tasks == 1) {
        sort(0, 0);
    } else if (num_tasks > 1) {
        parallel.run(num_tasks, sort);
    }
    write_counts(request, counts, num_keys, num_threads);
    return {};
}

}  // namespace afd::ops
