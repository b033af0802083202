// SPDX-License-Identifier: Apache-2.0
#include "daemon/gateway/hop_sampler.h"

#include <gtest/gtest.h>

#include "daemon/metrics/metrics.h"
#include "tests/daemon/loop_helper.h"

namespace afd::daemon {
namespace {

TraceEvent event(
    TraceKind kind, uint64_t start_ns, uint64_t end_ns, int32_t round, uint16_t session = 0) {
    return {.start_ns = start_ns,
            .duration_ns = end_ns - start_ns,
            .kind = kind,
            .session = session,
            .round = round};
}

// One round of session 0 at two FFN workers: published at 200, taken at 250 and 300, the last
// result at 900, found at 1000.
std::vector<TraceEvent> attention_events() {
    return {event(TraceKind::kDispatch, 100, 200, 7), event(TraceKind::kWait, 200, 1000, 7)};
}
std::vector<TraceEvent> ffn_events() {
    return {event(TraceKind::kGather, 250, 270, 7),
            event(TraceKind::kReturn, 400, 500, 7),
            event(TraceKind::kGather, 300, 320, 7),
            event(TraceKind::kReturn, 800, 900, 7)};
}

TEST(HopTimes, AreFromPublishingToTakingAndFromTheLastResultToFindingAll) {
    HopTimes times;
    add_hops(attention_events(), ffn_events(), times);
    EXPECT_EQ(times.a2f.count, 2u);
    EXPECT_EQ(times.a2f.sum, 50u + 100u);
    EXPECT_EQ(times.f2a.count, 1u);
    EXPECT_EQ(times.f2a.sum, 100u);
}

// Goal: rounds of which a part lies outside the sample, and events that are no round's, give no
// hop; one that was seen before its event ended gives none below zero.
TEST(HopTimes, LeaveOutWhatIsNotWhole) {
    HopTimes times;
    add_hops({event(TraceKind::kWait, 0, 1000, 7), event(TraceKind::kDispatch, 100, 200, 0)},
             {event(TraceKind::kGather, 250, 270, 7),
              event(TraceKind::kReturn, 400, 500, 7),
              event(TraceKind::kGather, 250, 270, 8),
              event(TraceKind::kBlock, 250, 270, 0)},
             times);
    add_hops(attention_events(), {event(TraceKind::kGather, 250, 270, 7, 1)}, times);
    EXPECT_EQ(times.a2f.count, 0u);
    EXPECT_EQ(times.f2a.count, 0u);
    add_hops(attention_events(),
             {event(TraceKind::kGather, 150, 160, 7), event(TraceKind::kReturn, 900, 1100, 7)},
             times);
    EXPECT_EQ(times.a2f.count, 1u);
    EXPECT_EQ(times.a2f.sum, 0u);
    EXPECT_EQ(times.f2a.sum, 0u);
}

// The rings of a session and a rank, and a sampler that runs over them.
class HopSamplerTest : public testing::Test {
  protected:
    TraceRing ring(size_t worker) {
        return Metrics(std::as_writable_bytes(std::span(segments_[worker]))).trace();
    }
    void record_round() {
        for (const TraceEvent& one : attention_events()) ring(0).record(one);
        for (const TraceEvent& one : ffn_events()) ring(1).record(one);
    }

    EventLoop loop_;
    std::array<std::vector<uint64_t>, 2> segments_{
        std::vector<uint64_t>(schedule::kMetricsLanesOffset / sizeof(uint64_t) + 16),
        std::vector<uint64_t>(schedule::kMetricsLanesOffset / sizeof(uint64_t) + 16)};
    HopSampler sampler_{loop_, {{"attention", 0, ring(0)}, {"ffn", 0, ring(1)}}};
};

TEST_F(HopSamplerTest, SamplesWhileRequestsRunAndLeavesTheRingsOff) {
    record_round();  // Before the sample: not of it.
    sampler_.run_while(true);
    ASSERT_TRUE(run_until(loop_, [&] { return ring(0).is_on() && ring(1).is_on(); }));
    record_round();
    ASSERT_TRUE(run_until(loop_, [&] { return sampler_.times().a2f.count > 0; }));
    EXPECT_EQ(sampler_.times().a2f.count, 2u);
    EXPECT_EQ(sampler_.times().f2a.count, 1u);
    EXPECT_FALSE(ring(0).is_on());
    EXPECT_FALSE(ring(1).is_on());
}

// A client's trace has the rings for itself: a sample that has begun does not turn them off.
TEST_F(HopSamplerTest, LeavesTheRingsToAClientsTrace) {
    sampler_.run_while(true);
    ASSERT_TRUE(run_until(loop_, [&] { return ring(0).is_on(); }));
    sampler_.pause();
    uint64_t turns = 0;
    Timer later(loop_, [&] { ++turns; });
    later.start(100);
    ASSERT_TRUE(run_until(loop_, [&] { return turns > 0; }));
    EXPECT_TRUE(ring(0).is_on());
    EXPECT_EQ(sampler_.times().a2f.count, 0u);
    sampler_.run_while(true);
    ASSERT_TRUE(run_until(loop_, [&] { return !ring(0).is_on(); }));
}

}  // namespace
}  // namespace afd::daemon
