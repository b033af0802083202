// SPDX-License-Identifier: Apache-2.0
//
// Goal: a pass of an FFN worker goes by what was validated, and by nothing that others could have
// written into its control segment since. Method: two tokens are published and taken; then every
// byte of the context and of the scheduler's output buffers there is spoilt, and the rows are
// gathered. Oracle: the rows' places, written by hand; that the process is still there.

#include "daemon/ffn/window_batcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "schedule/dispatch/dispatch_lane.h"
#include "tests/schedule/protocol/local_instance.h"

namespace afd::daemon {
namespace {

using ::testing::ElementsAre;

constexpr uint32_t kHidden = 128;
constexpr uint32_t kExperts = 8;
constexpr uint32_t kTopK = 2;

void spoil(const schedule::ControlView& control, const schedule::FfnControlLayout& layout, int to) {
    std::memset(static_cast<void*>(&control.context()), to, sizeof(schedule::ScheduleContext));
    for (const uint64_t offset :
         {layout.layer_ids_offset, layout.session_ids_offset, layout.micro_batch_ids_offset}) {
        std::memset(control.base() + offset, to, layout.per_session_bytes);
    }
    std::memset(control.base() + layout.expert_ids_offset, to, layout.expert_ids_bytes);
}

schedule::Geometry geometry_of(uint32_t num_sessions) {
    return {.num_sessions = num_sessions,
            .num_micro_batches = 1,
            .micro_batch_size = 4,
            .selected_expert_num = kTopK,
            .num_experts = kExperts,
            .attn_to_ffn_token_bytes = 512,
            .ffn_to_attn_token_bytes = 512,
            .num_ffn_workers = 1};
}

TEST(WindowBatcher, GathersWhatWasTakenWhateverTheControlSegmentSays) {
    const schedule::Geometry geometry = geometry_of(2);
    for (const int to : {0x00, 0x01, 0x7f, 0xff}) {
        schedule::LocalInstance instance(geometry);
        const auto dispatch = instance.dispatch(1);
        const auto transport = instance.returns(0);
        const std::vector<schedule::LayerExperts> layers = {{kExperts, 0}};
        const auto placement = schedule::ExpertPlacement::round_robin(layers, 1).value();
        schedule::ReadyScan scan(*transport, placement);
        const auto dtype = schedule::RowDtype::kBf16;
        WindowBatcher batcher(*transport, kExperts, 1, dtype, kHidden);
        ExpertBatch batch(2 * geometry.slots_per_micro_batch(), kExperts, dtype, kHidden);
        schedule::DispatchLane lane(*dispatch, geometry, 0);
        ASSERT_TRUE(lane.may_store());
        lane.begin(0);
        std::array<ops::Bf16, kHidden> row{};
        row.fill(ops::from_float(1.5F));
        lane.put({0, 5}, 0, 0, std::as_bytes(std::span(row)));
        lane.put({0, 3}, 2, 1, std::as_bytes(std::span(row)));
        lane.publish(schedule::DispatchMode::kAsync);
        scan.take(scan.scan(1));

        spoil(transport->own_control(), transport->layout().ffn_control, to);
        ops::SerialParallel serial;
        batcher.gather(scan, batch, serial);
        ASSERT_EQ(batch.num_rows, 2U) << to;
        ASSERT_EQ(batch.num_groups, 2U) << to;
        EXPECT_EQ(batch.groups[0].key, 3);
        EXPECT_EQ(batch.groups[1].key, 5);
        const auto first_two = [](const std::vector<int32_t>& ids) {
            return std::vector<int32_t>(ids.begin(), ids.begin() + 2);
        };
        EXPECT_THAT(first_two(batch.session_ids), ElementsAre(1, 1));
        EXPECT_THAT(first_two(batch.micro_batch_ids), ElementsAre(0, 0));
        EXPECT_THAT(first_two(batch.token_ids), ElementsAre(2, 0));
        EXPECT_THAT(first_two(batch.expert_offsets), ElementsAre(1, 0));
        EXPECT_EQ(batch.x[0].bits, row[0].bits);
        EXPECT_EQ(batch.x[2 * kHidden - 1].bits, row[0].bits);
        EXPECT_EQ(scan.ids(0)[0], 5) << "and router = ffn reads the private ids too";
        scan.acknowledge_taken();
        EXPECT_TRUE(lane.acknowledged(schedule::Order::kAcquire));
    }
}

// Goal: int8 rows are the operator's token dtype 2: values and scales come apart, without the bytes
// that pad a slot. Method: an odd number of values, so that a scale lies at an odd address. Oracle:
// the bytes that were put, and the scale behind them.
TEST(WindowBatcher, GathersInt8ValuesAndTheirScalesApart) {
    constexpr uint32_t kOdd = 77;
    const schedule::Geometry geometry = geometry_of(1);
    schedule::LocalInstance instance(geometry);
    const auto dispatch = instance.dispatch(0);
    const auto transport = instance.returns(0);
    const std::vector<schedule::LayerExperts> layers = {{kExperts, 0}};
    const auto placement = schedule::ExpertPlacement::round_robin(layers, 1).value();
    schedule::ReadyScan scan(*transport, placement);
    const auto dtype = schedule::RowDtype::kInt8;
    WindowBatcher batcher(*transport, kExperts, 1, dtype, kOdd);
    ExpertBatch batch(geometry.slots_per_micro_batch(), kExperts, dtype, kOdd);
    schedule::DispatchLane lane(*dispatch, geometry, 0);
    ASSERT_TRUE(lane.may_store());
    lane.begin(0);
    const auto row_of = [](int8_t first, float scale) {
        std::vector<std::byte> row(ops::sent_row_bytes(schedule::RowDtype::kInt8, kOdd));
        for (uint32_t i = 0; i < kOdd; ++i) row[i] = static_cast<std::byte>(first + i);
        std::memcpy(row.data() + kOdd, &scale, sizeof(scale));
        return row;
    };
    const auto late = row_of(-100, 0.25F);
    const auto early = row_of(3, 8.5F);
    lane.put({0, 5}, 0, 0, late);
    lane.put({0, 3}, 2, 1, early);
    lane.publish(schedule::DispatchMode::kAsync);
    scan.take(scan.scan(1));
    ops::SerialParallel serial;
    batcher.gather(scan, batch, serial);
    ASSERT_EQ(batch.num_rows, 2U);
    const auto* values = reinterpret_cast<const std::byte*>(batch.x.data());
    EXPECT_EQ(std::memcmp(values, early.data(), kOdd), 0);
    EXPECT_EQ(std::memcmp(values + kOdd, late.data(), kOdd), 0);
    EXPECT_EQ(batch.scales[0], 8.5F);
    EXPECT_EQ(batch.scales[1], 0.25F);
    scan.acknowledge_taken();
}

}  // namespace
}  // namespace afd::daemon
