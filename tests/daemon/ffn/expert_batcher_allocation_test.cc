// SPDX-License-Identifier: Apache-2.0
//
// Goal: a pass of an FFN worker makes its batch of rows without allocating (promise 5), whichever
// side routes. Method: this program counts every operator new; a session publishes two rounds of an
// MoE layer, two tokens each, which a rank takes and gathers. Oracle: the count stands still over
// the second pass, and both passes found the rows.

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <vector>

#include "daemon/ffn/ffn_router.h"
#include "daemon/ffn/window_batcher.h"
#include "schedule/dispatch/dispatch_lane.h"
#include "tests/counted_allocations.h"
#include "tests/schedule/protocol/local_instance.h"

namespace afd::daemon {
namespace {

using schedule::RouterPlacement;

constexpr uint32_t kHidden = 128;
constexpr uint32_t kExperts = 8;
constexpr uint32_t kTopK = 3;
constexpr uint32_t kTokens = 2;

model::Router make_router() {
    std::vector<ops::Bf16> weight(kExperts * kHidden);
    for (size_t i = 0; i < weight.size(); ++i) {
        weight[i] = ops::from_float(static_cast<float>(i % 7) / 7);
    }
    std::vector<model::Router::Gate> gates(1);
    gates[0].weight =
        ops::PackedLinear::pack(ops::make_rows<const ops::Bf16>(weight.data(), kExperts, kHidden),
                                ops::NumericClass::kPortable);
    return model::Router::make({.num_experts = kExperts, .top_k = kTopK}, std::move(gates)).value();
}

class ExpertBatcherPass : public testing::TestWithParam<RouterPlacement> {
  protected:
    ExpertBatcherPass()
        : instance_({.num_sessions = 1,
                     .num_micro_batches = 1,
                     .micro_batch_size = 4,
                     .selected_expert_num = kTopK,
                     .num_experts = kExperts,
                     .attn_to_ffn_token_bytes = 512,
                     .ffn_to_attn_token_bytes = 512,
                     .num_ffn_workers = 1}),
          dispatch_(instance_.dispatch(0)),
          lane_(*dispatch_, instance_.layout().geometry, 0) {}

    // Dispatches the tokens, routed or offered.
    void publish() {
        const std::array<ops::Bf16, kHidden> row{};
        ASSERT_TRUE(lane_.may_store());
        lane_.begin(0);
        for (uint32_t token = 0; token < kTokens; ++token) {
            if (GetParam() == RouterPlacement::kFfn) {
                lane_.offer(token, kTopK, std::as_bytes(std::span(row)));
                continue;
            }
            for (uint32_t k = 0; k < kTopK; ++k) {
                lane_.put({0, static_cast<int32_t>(k)}, token, k, std::as_bytes(std::span(row)));
            }
        }
        lane_.publish(schedule::DispatchMode::kAsync);
    }

    schedule::LocalInstance instance_;
    std::unique_ptr<schedule::ShmDispatchTransport> dispatch_;
    schedule::DispatchLane lane_;
};

TEST_P(ExpertBatcherPass, AllocatesNothing) {
    const schedule::WindowLayout& layout = instance_.layout();
    const std::vector<schedule::LayerExperts> layers = {{kExperts, 0}};
    const auto placement = schedule::ExpertPlacement::round_robin(layers, 1).value();
    const auto transport = instance_.returns(0);
    const model::Router router = make_router();
    schedule::ReadyScan scan(*transport, placement, GetParam());
    const auto dtype = schedule::RowDtype::kBf16;
    WindowBatcher by_ids(*transport, kExperts, 1, dtype, kHidden);
    FfnRouter by_gate(*transport, placement, router, kHidden, false, 1);
    ExpertBatcher& batcher = GetParam() == RouterPlacement::kFfn
                                 ? static_cast<ExpertBatcher&>(by_gate)
                                 : static_cast<ExpertBatcher&>(by_ids);
    ExpertBatch batch(layout.geometry.slots_per_micro_batch(), kExperts, dtype, kHidden);
    batch.weights.resize(layout.geometry.slots_per_micro_batch());
    ops::SerialParallel serial;
    for (int pass = 0; pass < 2; ++pass) {
        publish();
        const uint64_t before = test::num_allocations();
        scan.take(scan.scan(1));
        batcher.gather(scan, batch, serial);
        scan.acknowledge_taken();
        EXPECT_TRUE(pass == 0 || test::num_allocations() == before)
            << test::num_allocations() - before << " allocations";
        EXPECT_EQ(batch.num_rows, kTokens * kTopK);
    }
}

INSTANTIATE_TEST_SUITE_P(Router,
                         ExpertBatcherPass,
                         testing::Values(RouterPlacement::kAttention, RouterPlacement::kFfn),
                         [](const auto& router) { return std::string(name_of(router.param)); });

}  // namespace
}  // namespace afd::daemon
