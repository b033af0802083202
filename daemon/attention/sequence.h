// SPDX-License-Identifier: Apache-2.0
#pragma once

// Sequence: one request as the data thread of an attention worker sees it.
//
// Its positions move through three marks, each at most the one before:
//   tokens.size()      known tokens: the prompt and what was sampled
//   num_scheduled      positions whose rows were handed to a micro-batch
//   layer_positions[l] positions whose keys of layer l are in the KV cache; behind the last layer:
//                      positions whose logits, where wanted, were used, a micro-batch at a time
// A row of position p may run layer l, or the head, only when layer_positions[l] == p: so several
// prefill chunks of one prompt can be in flight in different micro-batches, ordered per layer, and
// what they report comes in order of position. A sequence that is ending waits for nobody: the
// chunk before may have failed, and nothing that its rows yield is used.
//
// Owned by SequenceTable; used by the data thread only.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "daemon/attention/held_blocks.h"
#include "daemon/control/worker_events.h"

namespace afd::daemon {

struct Sequence {
    std::unique_ptr<SequenceRequest> request;  // Goes back with kEnd. Null: the place is free.
    HeldBlocks held;      // The KV blocks; of a model that has layers with a window beside others,
    HeldBlocks windowed;  // those of the others, and these of the layers with a window.
    // SequenceTable's own: the positions that have their blocks so far, from the first on.
    uint32_t num_backed_positions = 0;
    std::vector<uint32_t> layer_positions;  // [num_layers + 1]
    uint32_t num_scheduled = 0;
    // The prefix cache (model/attention/prefix_cache.h); SequenceTable's own.
    uint64_t prefix_serial = 0;      // Of the last block that is chained.
    uint32_t num_chained = 0;        // Blocks that have an entry, from the first on.
    uint32_t num_shared = 0;         // Of these, or behind them: those that others may hold.
    uint32_t num_cached_tokens = 0;  // Positions that another sequence had computed.
    bool uses_prefix = false;        // Looks for its prefix, and offers its blocks.
    bool awaits_prefix = false;      // Another sequence computes its next block now.
    uint32_t num_in_flight = 0;      // Micro-batches that hold rows of this sequence.
    bool is_started = false;         // kStarted was sent.
    bool is_in_long_lane = false;    // The lane of long prompts has rows of it: no other gets any.
    bool avoids_long_lane = false;   // That lane gave its rows back.
    bool is_ending = false;          // Ends with `end_code` once nothing is in flight.
    Code end_code = Code::kOk;
    bool gives_way = false;  // For want of room; it was marked so.
    char end_text[kEventTextBytes] = {};
    // Since when its rows wait for a lane, and one that would take them is blocked; 0: they do not.
    // Likewise of the prefix that it awaits, while nobody computes.
    uint64_t blocked_since_us = 0;

    uint32_t num_tokens() const { return static_cast<uint32_t>(request->tokens.size()); }

    // Rows that could be scheduled now.
    uint32_t num_ready() const {
        return is_ending || awaits_prefix
                   ? 0
                   : std::min(num_tokens(), num_backed_positions) - num_scheduled;
    }

    // Whether the one ready row is the newest token of a sequence whose prompt is done.
    bool is_decoding() const {
        return num_ready() == 1 && num_scheduled > 0 && num_scheduled + 1 == num_tokens();
    }
};

}  // namespace afd::daemon
