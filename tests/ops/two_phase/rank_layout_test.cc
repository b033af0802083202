// SPDX-License-Identifier: Apache-2.0
//
// To which ranks tokens go, and what each rank gets of several senders.

#include "ops/two_phase/rank_layout.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/ops/two_phase/two_phase_case.h"

namespace afd::ops {
namespace {

using test::Cluster;
using test::kSizes;
using test::Size;
using test::Tensor;

struct Counts {
    std::vector<int64_t> tokens_per_rank;
    std::vector<int64_t> rows_per_expert;
    std::vector<uint8_t> token_in_rank;
    std::vector<int64_t> block_prefix;

    explicit Counts(const TwoPhaseRouting& r)
        : tokens_per_rank(static_cast<size_t>(r.num_ranks)),
          rows_per_expert(static_cast<size_t>(r.num_ranks * r.num_local_experts)) {}

    // Adds a part of a batch.
    void add(const TwoPhaseRouting& r) {
        const size_t num_tokens = r.expert_ids.shape[0];
        const auto block = static_cast<size_t>(r.block_size);
        token_in_rank.assign(num_tokens * tokens_per_rank.size(), 7);
        block_prefix.assign((num_tokens + block - 1) / block * tokens_per_rank.size(), 7);
        const Workspace workspace(rank_layout_workspace_bytes(r));
        const auto done = rank_layout(
            r, {tokens_per_rank, rows_per_expert, token_in_rank, block_prefix}, workspace.bytes());
        ASSERT_TRUE(done.ok()) << done.error().message;
    }
};

// rank and local id of every slot of a sender, by the test's own reading of the table.
struct Place {
    int32_t rank = -1;
    int32_t local_id = -1;
};
std::vector<Place> places_of(Cluster& c, size_t sender) {
    std::vector<Place> places(c.size.num_tokens * c.slots_per_token());
    for (const auto& [rank, local_id, from, slot] : c.single_pass()) {
        if (from == sender) places[slot] = {rank, local_id};
    }
    return places;
}

// Oracle: for every token and rank, whether any slot of the token is there.
void expect_brute_force(const Counts& have, Cluster& c, size_t sender) {
    const std::vector<Place> places = places_of(c, sender);
    const size_t k1 = c.slots_per_token();
    const size_t num_ranks = c.size.num_ranks;
    std::vector<int64_t> rows(have.rows_per_expert.size(), 0);
    std::vector<int64_t> tokens(num_ranks, 0);
    const auto block = static_cast<size_t>(c.block_size);
    for (size_t t = 0; t < c.size.num_tokens; ++t) {
        for (size_t rank = 0; rank < num_ranks; ++rank) {
            if (t % block == 0) {
                EXPECT_EQ(have.block_prefix[t / block * num_ranks + rank], tokens[rank]);
            }
            bool is_here = false;
            for (size_t k = 0; k < k1; ++k) {
                is_here = is_here || places[t * k1 + k].rank == static_cast<int32_t>(rank);
            }
            EXPECT_EQ(have.token_in_rank[t * num_ranks + rank], is_here ? 1 : 0) << t;
            if (is_here) ++tokens[rank];
        }
    }
    for (const Place& place : places) {
        if (place.rank < 0) continue;
        ++rows[static_cast<size_t>(place.rank * c.num_local + place.local_id)];
    }
    EXPECT_EQ(have.tokens_per_rank, tokens);
    EXPECT_EQ(have.rows_per_expert, rows);
}

// How the ids of a test lie: as Cluster draws them, most at one expert, or one expert in all slots.
enum class Draw { kUniform, kSkewed, kRepeated, kAllMasked };

void draw_ids(Cluster& c, Draw draw) {
    if (draw == Draw::kUniform || c.size.num_routed == 0) return;
    std::mt19937 engine(5);
    for (test::Sender& sender : c.senders) {
        const auto most = static_cast<int32_t>(c.size.num_routed) - 1;
        for (size_t i = 0; i < sender.ids.view.num_elements(); ++i) {
            int32_t& id = sender.ids.as<int32_t>()[i];
            if (draw == Draw::kSkewed && engine() % 5 != 0) id = most;
            if (draw == Draw::kRepeated) id = static_cast<int32_t>(i / c.size.top_k) % (most + 1);
            if (draw == Draw::kAllMasked) id = -1;
        }
    }
}

template <typename Body>
void for_each_cluster(const Body& body) {
    for (const Size& size : kSizes) {
        for (const Draw draw : {Draw::kUniform, Draw::kSkewed, Draw::kRepeated, Draw::kAllMasked}) {
            for (const int64_t block_size : {1, 4, 8192}) {
                Cluster c(size);
                c.block_size = block_size;
                draw_ids(c, draw);
                body(c);
            }
        }
    }
}

TEST(RankLayout, CountsMasksAndPrefixesAreThoseOfBruteForce) {
    for_each_cluster([](Cluster& c) {
        for (size_t sender = 0; sender < c.size.num_senders; ++sender) {
            const auto routing = c.request_of<TwoPhaseRouting>(sender);
            Counts counts(routing);
            counts.add(routing);
            expect_brute_force(counts, c, sender);
        }
    });
}

// Goal: a batch in parts gives the counts of the whole, and before each part the place where its
// tokens begin. Oracle: the whole, in blocks of the same size.
TEST(RankLayout, PartsAddUpToTheWhole) {
    constexpr size_t kPart = 8;
    Cluster c({.num_tokens = 101, .top_k = 4, .num_shared = 1, .num_routed = 29, .num_ranks = 5});
    c.block_size = kPart;
    const auto whole = c.request_of<TwoPhaseRouting>(0);
    Counts expected(whole);
    expected.add(whole);
    Counts counts(whole);
    std::vector<int64_t> before;
    std::vector<uint8_t> mask;
    for (size_t first = 0; first < c.size.num_tokens; first += kPart) {
        before.insert(before.end(), counts.tokens_per_rank.begin(), counts.tokens_per_rank.end());
        TwoPhaseRouting part = whole;
        part.expert_ids =
            make_tensor<const void>(c.senders[0].ids.as<int32_t>() + first * c.size.top_k,
                                    DType::kInt32,
                                    {std::min(kPart, c.size.num_tokens - first), c.size.top_k});
        counts.add(part);
        mask.insert(mask.end(), counts.token_in_rank.begin(), counts.token_in_rank.end());
    }
    EXPECT_EQ(counts.tokens_per_rank, expected.tokens_per_rank);
    EXPECT_EQ(counts.rows_per_expert, expected.rows_per_expert);
    EXPECT_EQ(mask, expected.token_in_rank);
    EXPECT_EQ(before, expected.block_prefix);
}

// What rank `rank` gets of all senders, in memory for rows_max rows.
struct Received {
    std::vector<int64_t> sources;
    std::vector<int32_t> local_ids;

    Received(size_t rows_max, size_t k1) : sources(rows_max, 77), local_ids(rows_max * k1, 77) {}
    RankRows rows() { return {sources, local_ids}; }
};

// Goal: rows come by (sender, token), once each, at the places that the exact sizes say, whichever
// sender writes first; and the worst case's valid rows are the same, the others marked.
// Oracle: a walk over all tokens with the test's own reading of the table.
TEST(RankLayout, ARankGetsItsTokensOnceInOrderInBothModes) {
    for_each_cluster([](Cluster& c) {
        const size_t num_ranks = c.size.num_ranks;
        const size_t num_senders = c.size.num_senders;
        const size_t k1 = c.slots_per_token();
        std::vector<int64_t> tokens;
        for (size_t s = 0; s < num_senders; ++s) {
            Counts counts(c.request_of<TwoPhaseRouting>(s));
            counts.add(c.request_of<TwoPhaseRouting>(s));
            tokens.insert(
                tokens.end(), counts.tokens_per_rank.begin(), counts.tokens_per_rank.end());
        }
        std::vector<int64_t> prefix(num_ranks * (num_senders + 1));
        rank_source_prefix(num_ranks, tokens, prefix);
        const Workspace workspace(rank_layout_workspace_bytes(c.request_of<TwoPhaseRouting>(0)));
        for (size_t rank = 0; rank < num_ranks; ++rank) {
            const int64_t* of_rank = &prefix[rank * (num_senders + 1)];
            std::vector<int64_t> sources;
            std::vector<int32_t> ids;
            for (size_t s = 0; s < num_senders; ++s) {
                EXPECT_EQ(of_rank[s], static_cast<int64_t>(sources.size()));
                const std::vector<Place> places = places_of(c, s);
                for (size_t t = 0; t < c.size.num_tokens; ++t) {
                    std::vector<int32_t> row;
                    for (size_t k = 0; k < k1; ++k) {
                        const Place& place = places[t * k1 + k];
                        const bool is_here = place.rank == static_cast<int32_t>(rank);
                        row.push_back(is_here ? place.local_id : -1);
                    }
                    if (row == std::vector<int32_t>(k1, -1)) continue;
                    sources.push_back(static_cast<int64_t>(s * c.size.num_tokens + t));
                    ids.insert(ids.end(), row.begin(), row.end());
                }
            }
            EXPECT_EQ(of_rank[num_senders], static_cast<int64_t>(sources.size()));

            Received exact(sources.size(), k1);
            for (size_t s = num_senders; s-- > 0;) {
                const auto end = put_rank_rows(c.request_of<TwoPhaseRouting>(s),
                                               rank,
                                               static_cast<int64_t>(s * c.size.num_tokens),
                                               static_cast<size_t>(of_rank[s]),
                                               exact.rows(),
                                               workspace.bytes());
                ASSERT_TRUE(end.ok()) << end.error().message;
                EXPECT_EQ(end.value(), static_cast<size_t>(of_rank[s + 1]));
            }
            EXPECT_EQ(exact.sources, sources);
            EXPECT_EQ(exact.local_ids, ids);

            Received worst(num_senders * c.size.num_tokens, k1);
            size_t num_valid = 0;
            for (size_t s = 0; s < num_senders; ++s) {
                num_valid = put_rank_rows(c.request_of<TwoPhaseRouting>(s),
                                          rank,
                                          static_cast<int64_t>(s * c.size.num_tokens),
                                          num_valid,
                                          worst.rows(),
                                          workspace.bytes())
                                .value();
            }
            end_rank_rows(num_valid, worst.rows());
            EXPECT_EQ(num_valid, sources.size());
            sources.resize(worst.sources.size(), -1);
            ids.resize(worst.local_ids.size(), -1);
            EXPECT_EQ(worst.sources, sources);
            EXPECT_EQ(worst.local_ids, ids);
        }
    });
}

// By hand: experts 0 and 2 on rank 0, 1 on rank 1; token 0 names two experts of rank 0, token 1 one
// expert twice, token 2 none.
TEST(RankLayout, ATokenCountsOnceForARank) {
    Tensor table(DType::kInt32, {1, 3, 1, 2});
    table.set<int32_t>({0, 0, 1, 0, 0, 1});
    Tensor ids(DType::kInt32, {3, 2});
    ids.set<int32_t>({2, 0, 1, 1, -1, 3});
    TwoPhaseRouting r;
    r.num_ranks = 2;
    r.num_local_experts = 2;
    r.expert_ids = ids.view;
    r.expert_rank_table = table.view;
    Counts counts(r);
    counts.add(r);
    EXPECT_EQ(counts.tokens_per_rank, (std::vector<int64_t>{1, 1}));
    EXPECT_EQ(counts.rows_per_expert, (std::vector<int64_t>{1, 1, 2, 0}));
    EXPECT_EQ(counts.token_in_rank, (std::vector<uint8_t>{1, 0, 0, 1, 0, 0}));
    std::vector<int64_t> prefix(6);
    rank_expert_prefix(2, counts.rows_per_expert, prefix);
    EXPECT_EQ(prefix, (std::vector<int64_t>{0, 1, 2, 0, 2, 2}));

    Received none(0, 2);
    const Workspace workspace(rank_layout_workspace_bytes(r));
    const auto refused = put_rank_rows(r, 1, 0, 0, none.rows(), workspace.bytes());
    EXPECT_EQ(refused.error().code, Code::kResourceExhausted);
    EXPECT_EQ(refused.error().message,
              "rank 1 gets 1 rows, and there is room for 0; rank_source_prefix() says how many "
              "there will be");
    table.set<int32_t>({0, 0, 2, 0, 0, 1});
    EXPECT_EQ(
        rank_layout(r, {counts.tokens_per_rank, counts.rows_per_expert, {}, {}}, workspace.bytes())
            .error()
            .message,
        "rank_layout: expert_rank_table[0, 1, 0] is (2, 0); the rank must be below num_ranks, 2");
    EXPECT_EQ(counts.tokens_per_rank, (std::vector<int64_t>{1, 1}));
}

}  // namespace
}  // namespace afd::ops
