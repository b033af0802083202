// SPDX-License-Identifier: Apache-2.0
#pragma once

// Rank layout: to which ranks a batch's tokens go, and what each rank gets, from the expert ids and
// the placement alone. For schedulers, load statistics and capacity planning.
//
// A token counts once for a rank, however many of its experts are there (rows count each slot). A
// rank gets its tokens by (sender, token), each with the local ids of its slots:
//
//   sizes      rank_layout() of every sender, then rank_source_prefix(): how many rows there are
//   rows       put_rank_rows() of every sender from its prefix on
//
// With the exact sizes known, the rows' memory is made for them. Without that exchange it is made
// for the worst case, every token of every sender, and end_rank_rows() marks what is left: the
// valid rows are the first ones and the same in both.
//
// A batch larger than memory comes in parts: counts add up over the calls, and what they are before
// a part is where its tokens begin at each rank. Keys, masked ids, replicas and shared experts are
// those of ops/two_phase/routing.h.

#include <cstddef>
#include <cstdint>
#include <span>

#include "ops/two_phase/routing.h"
#include "proto/status.h"

namespace afd::ops {

// Of one sender.
struct RankLayout {
    // In place: the calls so far; zero before the first.
    std::span<int64_t> tokens_per_rank;  // [num_ranks]
    std::span<int64_t> rows_per_expert;  // [num_ranks, num_local_experts]

    // Out, of the tokens of this call; empty: not wanted.
    std::span<uint8_t> token_in_rank;  // [N, num_ranks]: 1 where the token has an expert
    std::span<int64_t> block_prefix;   // [num_blocks, num_ranks]: tokens_per_rank before the block
};

// Scratch of rank_layout() and put_rank_rows(): O(num_ranks · num_local_experts + experts).
size_t rank_layout_workspace_bytes(const TwoPhaseRouting& routing);

// One pass over the ids. REQUIRES: the spans have the sizes above.
// Errors: kInvalidArgument, what is wrong with the routing; then nothing was written.
Result<> rank_layout(const TwoPhaseRouting& routing,
                     const RankLayout& out,
                     std::span<std::byte> workspace);

// prefix [num_ranks, num_senders + 1] = rows of a rank before each sender's; the last entry: all.
// `tokens_per_rank` [num_senders, num_ranks], of each sender.
void rank_source_prefix(size_t num_ranks,
                        std::span<const int64_t> tokens_per_rank,
                        std::span<int64_t> prefix);

// prefix [num_ranks, num_local_experts + 1] = expert rows of a rank before each of its experts; the
// last entry: all. `rows_per_expert` [num_ranks, num_local_experts].
void rank_expert_prefix(size_t num_ranks,
                        std::span<const int64_t> rows_per_expert,
                        std::span<int64_t> prefix);

// What a rank gets.
struct RankRows {
    std::span<int64_t> sources;    // [rows_max]: first_source + token
    std::span<int32_t> local_ids;  // [rows_max, K + S]: the slot's local id, -1 if not of this rank
};

// Writes the sender's rows for `rank`, from `first_row` on, ascending token. Returns the row after
// the last. `first_source` numbers the sender's first token.
// Errors: kInvalidArgument as rank_layout(); kResourceExhausted: rows_max is too small; the message
// says for how many rows.
Result<size_t> put_rank_rows(const TwoPhaseRouting& routing,
                             size_t rank,
                             int64_t first_source,
                             size_t first_row,
                             const RankRows& out,
                             std::span<std::byte> workspace);

// Marks the rows from `num_valid` on as none: source and ids -1.
void end_rank_rows(size_t num_valid, const RankRows& out);

}  // namespace afd::ops
