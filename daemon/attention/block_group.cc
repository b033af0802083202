// SPDX-License-Identifier: Apache-2.0
#include "daemon/attention/block_group.h"

#include <algorithm>

#include "proto/check.h"

namespace afd::daemon {

BlockGroup::BlockGroup(uint32_t num_blocks, bool has_prefix_cache, uint32_t window)
    : blocks_(num_blocks, has_prefix_cache), window_(window) {
    returned_.reserve(1);
}

uint32_t BlockGroup::first_seen(uint32_t num_computed) const {
    if (window_ == 0 || num_computed < window_) return 0;
    return (num_computed + 1 - window_) / model::kKvBlockTokens;
}

void BlockGroup::leave(HeldBlocks& held, uint32_t num_computed) {
    const uint32_t num_unseen = first_seen(num_computed);
    for (; held.num_left < num_unseen; ++held.num_left) {
        if (held.num_left == held.table.size()) {
            // Any block of the cache: tables are checked as a whole.
            held.table.push_back(0);
            continue;
        }
        returned_.push_back(held.table[held.num_left]);
        blocks_.release(returned_);
    }
}

bool BlockGroup::take_more(HeldBlocks& held, uint32_t max_total_tokens) {
    const uint64_t wanted = std::min(model::BlockAllocator::blocks_for(max_total_tokens),
                                     held.num_left + model::held_blocks(max_total_tokens, window_));
    return wanted <= held.table.size() || blocks_.reserve(wanted - held.table.size(), held.table);
}

void BlockGroup::share(HeldBlocks& held, uint32_t index, int32_t block) {
    AFD_ASSERT(index >= held.num_left && index <= held.table.size(),
               "block %u of %zu, %u left",
               index,
               held.table.size(),
               held.num_left);
    blocks_.hold(block);
    if (index == held.table.size()) {
        held.table.push_back(block);
        return;
    }
    returned_.push_back(held.table[index]);
    blocks_.release(returned_);
    held.table[index] = block;
}

void BlockGroup::release(HeldBlocks& held) {
    // Others may hold those that it has left.
    held.table.erase(held.table.begin(), held.table.begin() + held.num_left);
    held.num_left = 0;
    blocks_.release(held.table);
}

}  // namespace afd::daemon
