// SPDX-License-Identifier: Apache-2.0
//
// Goal: the memory of phase 1 is its indices, 4 bytes a (token, k), and what does not grow with the
// batch. An executable of its own, because it replaces the global allocation functions.
// Method: 1,048,576 tokens, top-2, H = 64, through the session's part up to its offers; every byte
// that is allocated meanwhile is counted. Oracle: the bytes; the offers hold every row once.

#include <gtest/gtest.h>

#include "daemon/lanes/remote_two_phase.h"
#include "schedule/shared_memory/shm_two_phase.h"
#include "tests/counted_allocations.h"
#include "tests/schedule/protocol/local_instance.h"

namespace afd::daemon {
namespace {

constexpr uint32_t kTokens = 1048576;
constexpr uint32_t kTopK = 2;
constexpr uint32_t kHidden = 64;
constexpr uint32_t kRanks = 4;
constexpr uint32_t kExperts = 64;

TEST(TwoPhaseAllocation, AMillionTokensNeedTheirIndicesAndLittleElse) {
    std::vector<ops::Bf16> x(size_t{kTokens} * kHidden);
    std::vector<int32_t> ids(size_t{kTokens} * kTopK);
    const std::vector<float> weights(ids.size(), 0.5F);
    for (size_t i = 0; i < ids.size(); ++i) {
        ids[i] = static_cast<int32_t>(i * 2654435761U % kExperts);
    }
    const auto placement = schedule::ExpertPlacement::round_robin(
                               std::vector<schedule::LayerExperts>{{kExperts, 0}}, kRanks)
                               .value();
    const auto layout = schedule::TwoPhaseControlLayout::compute(
        {.num_sessions = 1, .num_experts = kExperts, .num_ffn_workers = kRanks});
    const schedule::Bytes own = schedule::zeroed_bytes(layout.session_bytes());
    std::vector<schedule::Bytes> areas;
    std::vector<const std::byte*> peers;
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
        areas.push_back(schedule::zeroed_bytes(layout.rank_bytes()));
        peers.push_back(areas.back().get());
    }
    const int32_t awake = 0;
    const std::vector<schedule::DoorbellRinger> ringers(kRanks,
                                                        schedule::DoorbellRinger(&awake, -1));
    schedule::NamedTwoPhaseMemory memory("/none");
    schedule::ShmTwoPhaseDispatch transport(layout, 0, own.get(), peers, ringers, memory);
    schedule::TwoPhaseSender sender(transport);
    ops::SerialParallel serial;

    const uint64_t bytes_before = test::num_allocated_bytes();
    RemoteTwoPhase part(
        {.hidden = kHidden, .top_k = kTopK, .num_tokens_max = kTokens, .block_tokens = 1024},
        {.sender = &sender, .placement = &placement, .parallel = &serial});
    part.expect_output(ops::make_rows(x.data(), kTokens, kHidden));
    const uint64_t constructed = test::num_allocated_bytes() - bytes_before;
    constexpr uint64_t kIndexBytes = 4 * uint64_t{kTokens} * kTopK;
    EXPECT_GE(constructed, kIndexBytes);
    EXPECT_LE(constructed, kIndexBytes + (uint64_t{256} << 10));

    const uint64_t before_round = test::num_allocated_bytes();
    auto ticket =
        part.prepare_async({.x = ops::make_rows<const ops::Bf16>(x.data(), kTokens, kHidden),
                            .num_tokens = kTokens,
                            .top_k = kTopK,
                            .topk_ids = ids.data(),
                            .topk_weights = weights.data()},
                           0);
    ASSERT_TRUE(ticket.ok()) << ticket.error().message;
    const uint64_t in_round = test::num_allocated_bytes() - before_round;
    EXPECT_LE(in_round, uint64_t{64} << 10) << "phase 1 allocates nothing that grows";

    ASSERT_EQ(sender.offered().size(), kRanks);
    uint64_t num_rows = 0;
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
        const void* stripe = own.get() + rank * layout.session_stripe_bytes;
        const auto* words = static_cast<const schedule::TwoPhaseSessionWords*>(stripe);
        const void* counts = words + 1;
        EXPECT_EQ(words->num_blocks, 1024);
        for (uint32_t e = 0; e < kExperts / kRanks; ++e) {
            num_rows += static_cast<uint32_t>(static_cast<const int32_t*>(counts)[e]);
        }
    }
    EXPECT_EQ(num_rows, ids.size());
}

}  // namespace
}  // namespace afd::daemon
