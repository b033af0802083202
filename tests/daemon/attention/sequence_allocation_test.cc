// SPDX-License-Identifier: Apache-2.0
//
// Goal: a running sequence takes its blocks without allocating (promise 5). Method: this program
// counts every operator new; a sequence grows through all of a cache in which another one has left
// its prefix, so that it takes free blocks and throws out kept ones. Oracle: the count stands
// still, and it has taken all there is.

#include <gtest/gtest.h>

#include "daemon/attention/sequence_table.h"
#include "tests/counted_allocations.h"

namespace afd::daemon {
namespace {

constexpr uint32_t kNumBlocks = 12;
constexpr uint32_t kNumTokens = kNumBlocks * model::kKvBlockTokens;

std::unique_ptr<SequenceRequest> request_with(uint32_t first_token, uint32_t num_tokens) {
    auto request = std::make_unique<SequenceRequest>();
    request->tokens.reserve(kNumTokens);
    request->tokens.resize(num_tokens, 5);
    request->tokens[0] = first_token;
    request->max_total_tokens = kNumTokens;
    request->reserved_tokens = num_tokens;
    return request;
}

void compute_known(SequenceTable& table, Sequence& sequence) {
    sequence.num_scheduled = sequence.num_tokens();
    for (uint32_t& position : sequence.layer_positions) position = sequence.num_tokens();
    table.offer_computed(sequence);
}

TEST(SequenceTableAllocation, GrowingTakesBlocksWithoutAny) {
    SequenceTable table(2, 3, kNumBlocks, kNumTokens, true);
    std::unique_ptr<SequenceRequest> other = request_with(1, kNumTokens / 2);
    Sequence* sequence = table.admit(other).value();
    compute_known(table, *sequence);
    table.release(*sequence);

    std::unique_ptr<SequenceRequest> request = request_with(2, 10);
    sequence = table.admit(request).value();
    const uint64_t num_before = test::num_allocations();
    while (sequence->num_tokens() < kNumTokens) {
        compute_known(table, *sequence);
        sequence->request->tokens.push_back(7);
        table.move_on(*sequence);
        ASSERT_EQ(table.make_room(), nullptr);
        ASSERT_EQ(sequence->num_ready(), 1U);
    }
    EXPECT_EQ(test::num_allocations(), num_before);
    EXPECT_EQ(table.num_kv_blocks_used(), kNumBlocks);
}

}  // namespace
}  // namespace afd::daemon
