// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <vector>

#include "tests/daemon/attention/sequence_requests.h"

namespace afd::daemon {
namespace {

TEST(SequenceTable, ReservesTheBlocksOfEveryPositionAndTakesThoseOfItsTokens) {
    SequenceTable table(4, 2, 10, 640, false);
    std::unique_ptr<SequenceRequest> first = request_of(1, 65);
    std::unique_ptr<SequenceRequest> second = request_of(2, 512);
    Sequence* sequence = table.admit(first).value();
    EXPECT_EQ(sequence->held.num_reserved, 2U);
    EXPECT_EQ(sequence->held.table.size(), 1U);
    ASSERT_TRUE(table.admit(second).ok());
    EXPECT_EQ(table.num_kv_blocks_used(), 2U);
    EXPECT_EQ(table.find(1), sequence);

    std::unique_ptr<SequenceRequest> third = request_of(3, 1);
    const auto refused = table.admit(third);
    ASSERT_FALSE(refused.ok());
    ASSERT_NE(third, nullptr) << "it stays with the caller";
    EXPECT_EQ(refused.error().code, Code::kResourceExhausted);
    EXPECT_EQ(refused.error().message,
              "1 tokens need 1 KV blocks, 0 of 10 are free; raise kv_tokens");

    EXPECT_EQ(table.release(*sequence)->sequence_id, 1U);
    EXPECT_EQ(table.find(1), nullptr);
    EXPECT_TRUE(table.admit(third).ok());
}

TEST(SequenceTable, ASequenceTakesABlockWithTheFirstTokenThatStandsThere) {
    SequenceTable table(1, 1, 10, 640, false);
    std::unique_ptr<SequenceRequest> request = request_of(1, 200);
    Sequence* sequence = table.admit(request).value();
    for (uint32_t num_tokens = 4; num_tokens <= 200; ++num_tokens) {
        sequence->num_scheduled = num_tokens - 1;
        sequence->request->tokens.push_back(7);
        table.move_on(*sequence);
        ASSERT_EQ(sequence->num_ready(), 1U) << num_tokens;
        ASSERT_EQ(table.num_kv_blocks_used(), (num_tokens + 63) / 64) << num_tokens;
    }
    table.release(*sequence);
    EXPECT_EQ(table.num_kv_blocks_used(), 0U);
}

TEST(SequenceTable, RefusesMoreSequencesThanItHasPlaces) {
    SequenceTable table(1, 1, 10, 64, false);
    std::unique_ptr<SequenceRequest> first = request_of(1, 1);
    std::unique_ptr<SequenceRequest> second = request_of(2, 1);
    ASSERT_TRUE(table.admit(first).ok());
    const auto refused = table.admit(second);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().message, "1 sequences run here already; raise max_sequences");
}

TEST(SequenceTable, StartsAPlaceAnew) {
    SequenceTable table(1, 3, 10, 64, false);
    std::unique_ptr<SequenceRequest> first = request_of(1, 10);
    Sequence* sequence = table.admit(first).value();
    sequence->layer_positions = {3, 2, 1, 0};
    sequence->num_scheduled = 3;
    sequence->is_ending = true;
    table.release(*sequence);
    std::unique_ptr<SequenceRequest> second = request_of(2, 10);
    sequence = table.admit(second).value();
    EXPECT_EQ(sequence->layer_positions, (std::vector<uint32_t>{0, 0, 0, 0}));
    EXPECT_EQ(sequence->num_scheduled, 0U);
    EXPECT_FALSE(sequence->is_ending);
}

// With room for a prompt of three tokens and no more than that block.
std::unique_ptr<SequenceRequest> growing_request(uint64_t id) {
    std::unique_ptr<SequenceRequest> request = request_of(id, 640);
    request->reserved_tokens = 4;
    return request;
}

// As the loop does at the end of a step that sampled.
void produce(SequenceTable& table, Sequence& sequence) {
    ASSERT_EQ(sequence.num_ready(), 1U) << sequence.num_tokens();
    compute(table, sequence, sequence.num_tokens());
    sequence.request->tokens.push_back(7);
    table.move_on(sequence);
}

TEST(SequenceTableGrowing, ATokenThatFindsNoBlockWaitsUntilTheYoungestHasGivenWay) {
    SequenceTable table(4, 2, 4, 640, false);
    Sequence& middle = admitted(table, growing_request(5));
    Sequence& youngest = admitted(table, growing_request(9));
    Sequence& oldest = admitted(table, growing_request(3));
    for (Sequence* one : {&oldest, &middle, &youngest}) {
        compute(table, *one, 2);
        while (one->num_tokens() < 65) produce(table, *one);
    }
    EXPECT_EQ(oldest.num_ready(), 1U) << "the fourth block";
    EXPECT_EQ(middle.num_ready(), 0U);
    EXPECT_EQ(table.make_room(), &youngest);
    youngest.is_ending = true;
    EXPECT_EQ(table.make_room(), nullptr) << "it is about to go";
    table.release(youngest);
    EXPECT_EQ(table.make_room(), nullptr);
    EXPECT_EQ(middle.num_ready(), 1U);
    EXPECT_EQ(table.num_kv_blocks_used(), 4U);
}

TEST(SequenceTableGrowing, OneThatFitsIsKeptOutByOthersOnly) {
    SequenceTable table(2, 2, 4, 640, false);
    std::unique_ptr<SequenceRequest> large = request_of(2, 640);
    large->reserved_tokens = 64 * 4;
    EXPECT_FALSE(table.fits_alone(*large)) << "nobody is here";
    Sequence& other = admitted(table, growing_request(1));
    const auto refused = table.admit(large);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().message,
              "256 tokens need 4 KV blocks, 3 of 4 are free; raise kv_tokens");
    EXPECT_TRUE(table.fits_alone(*large));
    large->reserved_tokens = 64 * 5;
    EXPECT_FALSE(table.fits_alone(*large));
    table.release(other);
}

}  // namespace
}  // namespace afd::daemon
