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

bool BlockGroup::reserve(HeldBlocks& held, uint64_t num_blocks) {
    if (num_blocks > uint64_t{num_unreserved()} + held.num_reserved) return false;
    num_reserved_ -= held.num_reserved;
    held.num_reserved = static_cast<uint32_t>(num_blocks);
    num_reserved_ += held.num_reserved;
    return true;
}

void BlockGroup::take(HeldBlocks& held, uint32_t num_tokens) {
    const uint64_t wanted = std::min(model::BlockAllocator::blocks_for(num_tokens),
                                     uint64_t{held.num_left} + held.num_reserved);
    if (wanted <= held.table.size()) return;
    const bool has_room = blocks_.take(wanted - held.table.size(), held.table);
    AFD_ASSERT(has_room,
               "%u of %u blocks are reserved, %u are free",
               num_reserved_,
               num_blocks(),
               blocks_.num_free());
}

void BlockGroup::share(HeldBlocks& held, int32_t block) {
    blocks_.hold(block);
    held.table.push_back(block);
}

void BlockGroup::release(HeldBlocks& held) {
    // Others may hold those that it has left.
    held.table.erase(held.table.begin(), held.table.begin() + held.num_left);
    held.num_left = 0;
    blocks_.release(held.table);
    num_reserved_ -= held.num_reserved;
    held.num_reserved = 0;
}

}  // namespace afd::daemon
