// SPDX-License-Identifier: Apache-2.0
#include "daemon/attention/sequence_table.h"

#include <gtest/gtest.h>

namespace afd::daemon {
namespace {

std::unique_ptr<SequenceRequest> request_of(uint64_t id, uint32_t max_total_tokens) {
    auto request = std::make_unique<SequenceRequest>();
    request->sequence_id = id;
    request->tokens = {1, 2, 3};
    request->max_total_tokens = max_total_tokens;
    return request;
}

TEST(SequenceTable, ReservesAndReleasesTheBlocksOfEveryPosition) {
    SequenceTable table(4, 2, 10, 640);
    std::unique_ptr<SequenceRequest> first = request_of(1, 65);
    std::unique_ptr<SequenceRequest> second = request_of(2, 512);
    Sequence* sequence = table.admit(first).value();
    EXPECT_EQ(sequence->block_table.size(), 2U);
    ASSERT_TRUE(table.admit(second).ok());
    EXPECT_EQ(table.num_kv_blocks_used(), 10U);
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

TEST(SequenceTable, RefusesMoreSequencesThanItHasPlaces) {
    SequenceTable table(1, 1, 10, 64);
    std::unique_ptr<SequenceRequest> first = request_of(1, 1);
    std::unique_ptr<SequenceRequest> second = request_of(2, 1);
    ASSERT_TRUE(table.admit(first).ok());
    const auto refused = table.admit(second);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().message, "1 sequences run here already; raise max_sequences");
}

TEST(SequenceTable, StartsAPlaceAnew) {
    SequenceTable table(1, 3, 10, 64);
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

}  // namespace
}  // namespace afd::daemon
