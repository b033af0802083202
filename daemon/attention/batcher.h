// SPDX-License-Identifier: Apache-2.0
#pragma once

// Batcher: which rows the next micro-batch takes (continuous batching with chunked prefill).
//
// Pure decisions over the sequences' marks: no clock, no I/O, no maths. Decoding sequences come
// first, one row each; what is left of the micro-batch is filled with prefill chunks in order of
// admission. So a long prompt delays the others' next tokens by at most one micro-batch.
//
// The decoding sequences are shared out over the M micro-batches (at most ceil(decoding / M) in
// one), so that both sides of the disaggregation always have work; with M = 1 all go together.
// Where they would fill the micro-batches, an eighth of the rows (at least one) is kept for prefill
// as long as there is some: a prompt does not wait until others end. With one row there are turns.
// Those that find no place come first in the next micro-batch.
//
// A prompt with more than long_prompt_threshold tokens left waits for the lane of long prompts,
// which takes up to long_lane_rows rows of such prompts at once. It takes none of a sequence of
// which another lane has rows, and while it has some, no other lane takes any: so what it gives
// back has no rows behind it. Which rows meet in a micro-batch never changes their bits (promise
// 1).

#include <cstdint>
#include <span>
#include <vector>

#include "daemon/attention/sequence.h"
#include "daemon/lanes/expert_lane.h"

namespace afd::daemon {

// A run of consecutive positions of one sequence in a micro-batch.
struct BatchPiece {
    Sequence* sequence = nullptr;
    uint32_t first_position = 0;
    uint32_t num_rows = 0;
    size_t events_reserved = 0;  // What its rows can produce, beyond kStarted and kEnd.
};

class Batcher {
  public:
    struct Limits {
        uint32_t num_micro_batches = 1;  // M: lanes that take any rows.
        uint32_t micro_batch_size = 1;   // BS: rows of one micro-batch.
        uint32_t long_lane_rows = 0;     // Rows of the lane of long prompts; 0: there is none.
        uint32_t long_prompt_threshold = 0;
    };
    explicit Batcher(Limits limits) : limits_(limits) {}

    // Chooses rows that a lane of this kind takes among `sequences` (in order of admission), marks
    // them scheduled and appends them to `pieces` (cleared first). At most `events_max` events can
    // result from them: one for each row that yields a token, one for each prompt row that reports
    // its logprob, one for each sequence that starts.
    // Cost: one pass over `sequences`; no allocation once `pieces` has its capacity.
    void fill(LaneRows rows,
              std::span<Sequence* const> sequences,
              size_t events_max,
              std::vector<BatchPiece>& pieces);

    // Whether the lane of long prompts gets rows; until it is said again.
    void use_long_lane(bool is_used) { uses_long_lane_ = is_used; }

    // Whether a lane of this kind takes rows of `sequence`, which has some ready.
    bool takes(LaneRows rows, const Sequence& sequence) const;

  private:
    void fill_any(std::span<Sequence* const> sequences,
                  size_t events_max,
                  std::vector<BatchPiece>& pieces);
    void fill_long(std::span<Sequence* const> sequences,
                   size_t events_max,
                   std::vector<BatchPiece>& pieces);
    bool wants_long_lane(const Sequence& sequence) const;
    // Of the prompt of `sequence`, through a lane that takes any rows.
    bool can_prefill(const Sequence& sequence) const;
    uint32_t rows_for_prefill(std::span<Sequence* const> sequences);
    // Events that `num_rows` more rows of `sequence` can produce.
    static size_t events_of(const Sequence& sequence, uint32_t num_rows);
    uint32_t take(Sequence& sequence,
                  uint32_t num_rows,
                  size_t& events_left,
                  std::vector<BatchPiece>& pieces);

    const Limits limits_;
    bool uses_long_lane_ = true;
    size_t next_decode_ = 0;      // Where the last pass over the decoding sequences ended.
    bool has_prefilled_ = false;  // With one row: the last one that both wanted was of a prompt.
};

}  // namespace afd::daemon
