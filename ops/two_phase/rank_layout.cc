// SPDX-License-Identifier: Apache-2.0

#include "ops/two_phase/rank_layout.h"

#include <algorithm>
#include <string>

#include "ops/tensor/workspace.h"
#include "ops/two_phase/spec.h"
#include "proto/check.h"

namespace afd::ops {
namespace {

constexpr AttributeSpec kAttributes[] = {two_phase::kNumRanks,
                                         two_phase::kNumLocalExperts,
                                         two_phase::kSharedExpertNum,
                                         two_phase::kSessionId,
                                         two_phase::kLayerId,
                                         two_phase::kBlockSize};
constexpr TensorSpec kTensors[] = {two_phase::kExpertIds, two_phase::kExpertRankTable};
constexpr std::string_view kRules[] = {two_phase::kTableRule, two_phase::kSlotsRule};

// For the messages; the function takes spans, so no tool lists it.
constexpr OperatorSpec kSpec = {"rank_layout",
                                "to which ranks tokens go",
                                "",
                                "specification, section 7",
                                kAttributes,
                                kTensors,
                                kRules,
                                {}};

Result<> check_routing(const TwoPhaseRouting& routing, std::span<uint8_t> held) {
    OperatorCheck check(kSpec);
    check_two_phase_routing(check, routing);
    AFD_TRY(check.finish());
    return check_two_phase_table(kSpec, routing, held);
}

struct Scratch {
    std::span<uint8_t> held;  // [num_keys]
    int32_t* key_of_expert;   // [E+S]
    int64_t* last_token;      // [num_ranks]: that was counted; -1: none; sized before the check
};

Scratch take_scratch(const TwoPhaseRouting& routing, std::span<std::byte> workspace) {
    const size_t num_keys = two_phase_num_keys(routing);
    WorkspaceCursor cursor(workspace);
    return {{cursor.take<uint8_t>(num_keys), num_keys},
            cursor.take<int32_t>(two_phase_num_experts(routing)),
            cursor.take<int64_t>(num_keys)};
}

// [num_rows, num_counts] → exclusive prefix sums of each row, the last entry its sum; count(r, i).
template <typename Count>
void write_prefix(size_t num_rows, size_t num_counts, int64_t* prefix, const Count& count) {
    for (size_t row = 0; row < num_rows; ++row) {
        int64_t sum = 0;
        for (size_t i = 0; i < num_counts; ++i) {
            *prefix++ = sum;
            sum += count(row, i);
        }
        *prefix++ = sum;
    }
}

}  // namespace

size_t rank_layout_workspace_bytes(const TwoPhaseRouting& routing) {
    const size_t num_keys = two_phase_num_keys(routing);
    return workspace_bytes_of<uint8_t>(num_keys) +
           workspace_bytes_of<int32_t>(two_phase_num_experts(routing)) +
           workspace_bytes_of<int64_t>(num_keys);
}

Result<> rank_layout(const TwoPhaseRouting& routing,
                     const RankLayout& out,
                     std::span<std::byte> workspace) {
    const Scratch scratch = take_scratch(routing, workspace);
    AFD_TRY(check_routing(routing, scratch.held));
    const TwoPhaseSlots slots(routing, scratch.key_of_expert);
    const auto num_ranks = static_cast<size_t>(routing.num_ranks);
    const size_t num_local = slots.num_local_experts();
    AFD_ASSERT(
        out.tokens_per_rank.size() == num_ranks && out.rows_per_expert.size() == slots.num_keys() &&
            (out.token_in_rank.empty() ||
             out.token_in_rank.size() == slots.num_tokens() * num_ranks) &&
            (out.block_prefix.empty() || out.block_prefix.size() == slots.num_blocks() * num_ranks),
        "counts of %zu ranks and %zu experts for %zu ranks of %zu",
        out.tokens_per_rank.size(),
        out.rows_per_expert.size(),
        num_ranks,
        num_local);
    std::fill(out.token_in_rank.begin(), out.token_in_rank.end(), uint8_t{0});
    std::fill_n(scratch.last_token, num_ranks, int64_t{-1});
    for (size_t block = 0; block < slots.num_blocks(); ++block) {
        if (!out.block_prefix.empty()) {
            std::copy(out.tokens_per_rank.begin(),
                      out.tokens_per_rank.end(),
                      out.block_prefix.begin() + static_cast<ptrdiff_t>(block * num_ranks));
        }
        for (size_t t = slots.first_token(block); t < slots.first_token(block + 1); ++t) {
            slots.for_each_of_token(t, [&](size_t, int32_t key) {
                ++out.rows_per_expert[static_cast<size_t>(key)];
                const size_t rank = static_cast<size_t>(key) / num_local;
                if (scratch.last_token[rank] == static_cast<int64_t>(t)) return;
                scratch.last_token[rank] = static_cast<int64_t>(t);
                ++out.tokens_per_rank[rank];
                if (!out.token_in_rank.empty()) out.token_in_rank[t * num_ranks + rank] = 1;
            });
        }
    }
    return {};
}

void rank_source_prefix(size_t num_ranks,
                        std::span<const int64_t> tokens_per_rank,
                        std::span<int64_t> prefix) {
    const size_t num_senders = tokens_per_rank.size() / num_ranks;
    AFD_ASSERT(
        tokens_per_rank.size() % num_ranks == 0 && prefix.size() == num_ranks * (num_senders + 1),
        "%zu counts and %zu prefixes of %zu ranks",
        tokens_per_rank.size(),
        prefix.size(),
        num_ranks);
    write_prefix(num_ranks, num_senders, prefix.data(), [&](size_t rank, size_t sender) {
        return tokens_per_rank[sender * num_ranks + rank];
    });
}

void rank_expert_prefix(size_t num_ranks,
                        std::span<const int64_t> rows_per_expert,
                        std::span<int64_t> prefix) {
    const size_t num_local = rows_per_expert.size() / num_ranks;
    AFD_ASSERT(
        rows_per_expert.size() % num_ranks == 0 && prefix.size() == num_ranks * (num_local + 1),
        "%zu counts and %zu prefixes of %zu ranks",
        rows_per_expert.size(),
        prefix.size(),
        num_ranks);
    write_prefix(num_ranks, num_local, prefix.data(), [&](size_t rank, size_t expert) {
        return rows_per_expert[rank * num_local + expert];
    });
}

Result<size_t> put_rank_rows(const TwoPhaseRouting& routing,
                             size_t rank,
                             int64_t first_source,
                             size_t first_row,
                             const RankRows& out,
                             std::span<std::byte> workspace) {
    const Scratch scratch = take_scratch(routing, workspace);
    AFD_TRY(check_routing(routing, scratch.held));
    const TwoPhaseSlots slots(routing, scratch.key_of_expert);
    const size_t k1 = slots.slots_per_token();
    const size_t num_local = slots.num_local_experts();
    const size_t rows_max = out.sources.size();
    AFD_ASSERT(out.local_ids.size() == rows_max * k1,
               "%zu local ids for %zu rows of %zu slots",
               out.local_ids.size(),
               rows_max,
               k1);
    size_t row = first_row;
    for (size_t t = 0; t < slots.num_tokens(); ++t) {
        size_t num_here = 0;
        slots.for_each_of_token(t, [&](size_t slot, int32_t key) {
            if (static_cast<size_t>(key) / num_local != rank) return;
            const bool is_first = num_here++ == 0;
            if (row >= rows_max) return;
            int32_t* ids = &out.local_ids[row * k1];
            if (is_first) std::fill_n(ids, k1, -1);
            ids[slot - t * k1] = key - static_cast<int32_t>(rank * num_local);
        });
        if (num_here == 0) continue;
        if (row < rows_max) out.sources[row] = first_source + static_cast<int64_t>(t);
        ++row;
    }
    if (row <= rows_max) return row;
    return Error{Code::kResourceExhausted,
                 "rank " + std::to_string(rank) + " gets " + std::to_string(row) +
                     " rows, and there is room for " + std::to_string(rows_max) +
                     "; rank_source_prefix() says how many there will be"};
}

void end_rank_rows(size_t num_valid, const RankRows& out) {
    if (out.sources.empty()) return;
    const size_t k1 = out.local_ids.size() / out.sources.size();
    std::fill(out.sources.begin() + static_cast<ptrdiff_t>(num_valid), out.sources.end(), -1);
    std::fill(
        out.local_ids.begin() + static_cast<ptrdiff_t>(num_valid * k1), out.local_ids.end(), -1);
}

}  // namespace afd::ops
