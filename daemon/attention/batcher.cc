// SPDX-License-Identifier: Apache-2.0
#include "daemon/attention/batcher.h"

#include <algorithm>

namespace afd::daemon {

void Batcher::fill(LaneRows rows,
                   std::span<Sequence* const> sequences,
                   size_t events_max,
                   std::vector<BatchPiece>& pieces) {
    pieces.clear();
    if (sequences.empty()) return;
    rows == LaneRows::kLongPrompts ? fill_long(sequences, events_max, pieces)
                                   : fill_any(sequences, events_max, pieces);
}

void Batcher::fill_any(std::span<Sequence* const> sequences,
                       size_t events_max,
                       std::vector<BatchPiece>& pieces) {
    uint32_t rows_left = limits_.micro_batch_size;
    size_t events_left = events_max;

    uint32_t num_generating = 0;
    for (const Sequence* sequence : sequences) {
        // Those whose row is in flight count too: the share must not depend on who happens to be
        // ready.
        const bool is_prefilling = sequence->num_ready() > 1 || sequence->num_scheduled == 0;
        if (!sequence->is_ending && !is_prefilling) ++num_generating;
    }
    // Divided among the micro-batches, so that each has decoding rows while the others are with the
    // experts; the first to be filled would otherwise take all of them.
    const uint32_t share =
        (num_generating + limits_.num_micro_batches - 1) / limits_.num_micro_batches;

    uint32_t decodes_left = std::min(rows_left - rows_for_prefill(sequences), share);
    const size_t start = next_decode_ % sequences.size();
    for (size_t i = 0; i < sequences.size() && decodes_left > 0; ++i) {
        const size_t at = (start + i) % sequences.size();
        if (!sequences[at]->is_decoding() || sequences[at]->is_in_long_lane) continue;
        const uint32_t taken = take(*sequences[at], 1, events_left, pieces);
        decodes_left -= taken;
        rows_left -= taken;
        // The next batch goes on here: with more decoding sequences than places all get their turn.
        next_decode_ = at + 1;
    }

    for (Sequence* sequence : sequences) {
        if (rows_left == 0) break;
        if (!can_prefill(*sequence)) continue;
        rows_left -=
            take(*sequence, std::min(rows_left, sequence->num_ready()), events_left, pieces);
    }
}

bool Batcher::can_prefill(const Sequence& sequence) const {
    return takes(LaneRows::kAny, sequence) && !sequence.is_decoding();
}

// Rows that decoding ones leave free.
uint32_t Batcher::rows_for_prefill(std::span<Sequence* const> sequences) {
    // Enough for a prompt to get on, and little enough for the others not to feel it: with places
    // for seven of eight a next token comes a seventh later; only tiny micro-batches keep more.
    const uint32_t most = std::max<uint32_t>(limits_.micro_batch_size / 8, 1);
    uint32_t wanted = 0;
    for (const Sequence* sequence : sequences) {
        if (wanted == most) break;
        if (can_prefill(*sequence)) wanted = std::min(most, wanted + sequence->num_ready());
    }
    if (wanted == 0 || limits_.micro_batch_size > 1) return wanted;
    has_prefilled_ = !has_prefilled_;
    return has_prefilled_ ? 1 : 0;
}

void Batcher::fill_long(std::span<Sequence* const> sequences,
                        size_t events_max,
                        std::vector<BatchPiece>& pieces) {
    uint32_t rows_left = limits_.long_lane_rows;
    size_t events_left = events_max;
    for (Sequence* sequence : sequences) {
        if (rows_left == 0) break;
        // Rows that another lane has of it come first: that lane may not give its own back.
        if (sequence->num_in_flight > 0 || !wants_long_lane(*sequence)) continue;
        const uint32_t taken =
            take(*sequence, std::min(rows_left, sequence->num_ready()), events_left, pieces);
        sequence->is_in_long_lane = taken > 0;
        rows_left -= taken;
    }
}

bool Batcher::takes(LaneRows rows, const Sequence& sequence) const {
    if (sequence.num_ready() == 0 || sequence.is_in_long_lane) return false;
    return wants_long_lane(sequence) == (rows == LaneRows::kLongPrompts);
}

bool Batcher::wants_long_lane(const Sequence& sequence) const {
    // By what is left of the prompt, not by its length: the last rows of a long one are a small
    // batch, and go through the windows.
    return limits_.long_lane_rows > 0 && uses_long_lane_ && !sequence.avoids_long_lane &&
           !sequence.is_decoding() && sequence.num_ready() > limits_.long_prompt_threshold;
}

size_t Batcher::events_of(const Sequence& sequence, uint32_t num_rows) {
    const uint32_t end = sequence.num_scheduled + num_rows;
    const size_t tokens = end == sequence.num_tokens() ? 1 : 0;
    // An upper bound; the last row of the prompt has no log probability of its own.
    const size_t logprobs = sequence.request->prompt_logprobs ? num_rows : 0;
    return tokens + logprobs + (sequence.is_started ? 0 : 1);
}

uint32_t Batcher::take(Sequence& sequence,
                       uint32_t num_rows,
                       size_t& events_left,
                       std::vector<BatchPiece>& pieces) {
    // A long prompt that reports logprobs goes on in smaller chunks while the ring is short.
    while (num_rows > 0 && events_of(sequence, num_rows) > events_left) num_rows /= 2;
    if (num_rows == 0) return 0;
    events_left -= events_of(sequence, num_rows);
    const size_t start_event = sequence.is_started ? 0 : 1;
    pieces.push_back(
        {&sequence, sequence.num_scheduled, num_rows, events_of(sequence, num_rows) - start_event});
    sequence.num_scheduled += num_rows;
    ++sequence.num_in_flight;
    return num_rows;
}

}  // namespace afd::daemon
