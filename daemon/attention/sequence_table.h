// SPDX-License-Identifier: Apache-2.0
#pragma once

// SequenceTable: the sequences that run in one attention worker, and the KV blocks they hold.
//
// All places are made at start-up. Admission reserves KV blocks by number, and a sequence takes
// them as its tokens come, those of its prompt at once (block_group.h). Of layers with a window it
// reserves so many as the window needs at a time: as it moves on, blocks that it has left are given
// back and as many taken, and rows beyond the last one wait for that. Where only some layers have a
// window, they have blocks, and a table, of their own (`windowed`).
//
// A sequence may reserve fewer than it may come to need (SequenceRequest::reserved_tokens). Then it
// reserves another with each token that needs one, and where there is none its rows wait until the
// youngest of all has given way, the one with the highest id. So the oldest is never thrown out,
// and one that fits alone comes to its end: those younger than it leave until it has room.
//
// Full blocks at its start that another sequence has computed are taken instead of computed again;
// while another one computes the next of them, the sequence waits for it. Whom it waits for was
// there before it or began further ahead in the same prefix, so that nobody waits in a circle; if
// that one ends early it goes on by itself. Windowed blocks are found by what stands before them in
// the other layers: a prefix may end where those that its next token sees are still there.
//
// Data thread only.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "daemon/attention/block_group.h"
#include "daemon/attention/sequence.h"
#include "model/attention/prefix_cache.h"

namespace afd::daemon {

// Blocks of those layers that have a window beside others that have none.
struct WindowedBlocks {
    uint32_t num_blocks = 0;  // 0: there are no such layers.
    uint32_t window = 0;
};

class SequenceTable {
  public:
    // `window`: AttentionConfig::window(). `tokens_max`: the longest sequence (the model's
    // context), which sizes a place's block table. REQUIRES: windowed.num_blocks suffices for as
    // many sequences as there are places, or as fit by num_kv_blocks.
    SequenceTable(uint32_t num_places,
                  uint32_t num_layers,
                  uint32_t num_kv_blocks,
                  uint32_t tokens_max,
                  bool has_prefix_cache,
                  uint32_t window = 0,
                  const WindowedBlocks& windowed = {});

    // Takes `request`, gives it a place and reserves its KV blocks.
    // Errors: kResourceExhausted, naming what is short; afdd admits only what fits, so this is a
    // disagreement about the sizes, unless fits_alone(). Then the caller keeps `request`.
    Result<Sequence*> admit(std::unique_ptr<SequenceRequest>& request);

    // Whether only what others have reserved keeps the request out: those that run have got tokens
    // that afdd had not heard of when it sent it.
    bool fits_alone(const SequenceRequest& request) const;

    // Looks again for the prefixes of sequences that wait for another one.
    void look_for_prefixes();

    // Offers what is computed of the sequence to others: the blocks up to its last mark. Nothing of
    // one that ends for another reason than that its last token is sampled.
    void offer_computed(Sequence& sequence);

    // Gives back the blocks that its window has left, and takes those of the tokens that it has.
    // REQUIRES: offer_computed() before it.
    void move_on(Sequence& sequence);

    // Takes the blocks that tokens wait for, as far as there are any. Returns the sequence that is
    // to give way because there are too few: the youngest; null: none is, or one ends already.
    // Cost: nothing while no token waits.
    Sequence* make_room();

    // Frees the place and the blocks. Returns the request, for kEnd.
    // REQUIRES: nothing of the sequence is in flight.
    std::unique_ptr<SequenceRequest> release(Sequence& sequence);

    // The sequence with this id, or null.
    Sequence* find(uint64_t sequence_id) const;

    // In order of admission.
    std::span<Sequence* const> active() const { return active_; }
    // Held by sequences; not those that are kept for sequences to come.
    uint32_t num_kv_blocks_used() const { return blocks_.num_used(); }
    // For tests.
    uint32_t num_windowed_blocks_used() const { return windowed_ ? windowed_->num_used() : 0; }
    // That sequences may hold.
    uint32_t num_windowed_blocks_reserved() const {
        return windowed_ ? windowed_->num_reserved() : 0;
    }

  private:
    // A block of a prefix that is ready.
    struct Shared {
        model::PrefixCache::Found found;
        int32_t windowed = -1;  // -1: not there any more.
    };

    static void start_place(Sequence& sequence);
    bool reserve_blocks(Sequence& sequence, uint32_t num_tokens);
    void take_blocks(Sequence& sequence);
    void leave_blocks(Sequence& sequence, uint32_t num_computed);
    void release_blocks(Sequence& sequence);
    size_t find_ready(const Sequence& sequence);
    bool take_ready(Sequence& sequence);
    bool is_next_on_its_way(const Sequence& sequence) const;
    void announce(Sequence& sequence);
    void follow_prefix(Sequence& sequence);
    void offer_windowed(Sequence& sequence, uint32_t index, model::PrefixCache::Serial parent);

    std::vector<Sequence> places_;
    std::vector<Sequence*> free_;
    std::vector<Sequence*> active_;
    BlockGroup blocks_;
    std::optional<BlockGroup> windowed_;
    std::vector<Shared> ready_;  // Scratch of find_ready().
    bool is_short_ = false;      // A token may wait for a block.
};

}  // namespace afd::daemon
