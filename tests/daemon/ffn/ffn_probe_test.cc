// SPDX-License-Identifier: Apache-2.0
#include "daemon/ffn/ffn_probe.h"

#include <gtest/gtest.h>

#include <vector>

namespace afd::daemon {
namespace {

// Goal: rows are counted for the expert that computed them, also where a local id names another
// expert in each layer, and those of dense layers for none.
// Method: one pass over a placement of three layers, the first dense, whose MoE layers give this
// rank other experts. Oracle: rows for each logical expert, added up by hand.
TEST(FfnProbe, CountsRowsByLogicalExpert) {
    const std::vector<std::vector<std::vector<uint32_t>>> ranks = {
        {{0, 1}},                  // Dense.
        {{0}, {1}, {1}, {0, 1}},   // Of rank 0: 0 and 3.
        {{1}, {0}, {0}, {0, 1}}};  // 1, 2 and 3.
    const auto placement = schedule::ExpertPlacement::from_ranks(ranks, 2);
    ASSERT_TRUE(placement.ok()) << placement.error().message;
    ASSERT_EQ(placement.value().num_local_experts_per_layer(0), 3U);

    std::vector<uint64_t> words(schedule::kMetricsLanesOffset / sizeof(uint64_t) + 16);
    const Metrics metrics(std::as_writable_bytes(std::span(words)));
    FfnProbe probe(metrics, placement.value(), 0);
    ExpertBatch batch(0, 9, schedule::RowDtype::kBf16, 1);
    // Key: layer · 3 + local id.
    batch.groups = {{0, 1}, {3, 10}, {4, 100}, {6, 1000}, {7, 10'000}, {8, 100'000}};
    batch.num_groups = batch.groups.size();
    probe.begin_pass({}, 0);
    probe.end_pass(batch, 0, {});

    EXPECT_EQ(metrics.expert_rows(0), 10U);
    EXPECT_EQ(metrics.expert_rows(1), 1000U);
    EXPECT_EQ(metrics.expert_rows(2), 10'000U);
    EXPECT_EQ(metrics.expert_rows(3), 100'100U);
}

}  // namespace
}  // namespace afd::daemon
