// SPDX-License-Identifier: Apache-2.0
#pragma once

// SequenceTable: the sequences that run in one attention worker, and the KV blocks they hold.
//
// All places are made at start-up; admission reserves a sequence's blocks for every position it
// may reach, so a running sequence never runs out of cache. Data thread only.

#include <cstdint>
#include <span>
#include <vector>

#include "daemon/attention/sequence.h"
#include "model/attention/kv_cache.h"

namespace afd::daemon {

class SequenceTable {
  public:
    // `tokens_max`: the longest sequence (the model's context), which sizes a place's block table.
    SequenceTable(uint32_t num_places,
                  uint32_t num_layers,
                  uint32_t num_kv_blocks,
                  uint32_t tokens_max);

    // Takes `request` and gives it a place and its KV blocks.
    // Errors: kResourceExhausted, naming what is short; afdd admits only what fits, so this is a
    // disagreement about the sizes. Then the caller keeps `request`.
    Result<Sequence*> admit(std::unique_ptr<SequenceRequest>& request);

    // Frees the place and the blocks. Returns the request, for kEnd.
    // REQUIRES: nothing of the sequence is in flight.
    std::unique_ptr<SequenceRequest> release(Sequence& sequence);

    // The sequence with this id, or null.
    Sequence* find(uint64_t sequence_id) const;

    // In order of admission.
    std::span<Sequence* const> active() const { return active_; }
    uint32_t num_kv_blocks_used() const { return blocks_.num_blocks() - blocks_.num_free(); }

  private:
    std::vector<Sequence> places_;
    std::vector<Sequence*> free_;
    std::vector<Sequence*> active_;
    model::BlockAllocator blocks_;
};

}  // namespace afd::daemon
