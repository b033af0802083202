// SPDX-License-Identifier: Apache-2.0
//
// Promise 5: in the steady state a data thread allocates nothing. An executable of its own, because
// it replaces the global allocation functions.
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "schedule/dispatch/dispatch_lane.h"
#include "schedule/dispatch/ffn_scheduler.h"
#include "schedule/dispatch/ready_scan.h"
#include "schedule/near/near_door.h"
#include "schedule/near/near_link.h"
#include "schedule/wait/adaptive_wait.h"
#include "tests/counted_allocations.h"
#include "tests/schedule/protocol/local_instance.h"

namespace afd::schedule {
namespace {

// Goal: nothing in a round allocates, not even its first. Method: both sides of all sessions in
// one thread, with every policy, refusals and waits included. Oracle: the count of allocations.
TEST(SteadyState, AllocatesNothing) {
    const Geometry geometry = small_geometry();
    LocalInstance instance(geometry);
    const ExpertPlacement placement = test_placement(4, 2);
    const std::vector<std::byte> row(512);
    for (const auto policy :
         {FfnPolicy::kAny, FfnPolicy::kGather, FfnPolicy::kAll, FfnPolicy::kGroups}) {
        const auto dispatch = instance.dispatch(1);
        const auto returns = instance.returns(0);
        std::vector<DispatchLane> lanes;
        for (uint32_t m = 0; m < geometry.num_micro_batches; ++m) {
            lanes.emplace_back(*dispatch, geometry, m);
        }
        ReadyScan scan(*returns, placement);
        FfnScheduler scheduler({.policy = policy, .num_sessions = 2, .num_micro_batches = 2});
        AdaptiveWait wait(returns->doorbell(), 0, false);
        Heartbeat heartbeat = returns->heartbeat();

        const uint64_t before = test::num_allocations();
        uint64_t now_us = 0;
        for (int round = 0; round < 50; ++round) {
            for (DispatchLane& lane : lanes) {
                ASSERT_TRUE(lane.may_store());
                lane.begin(round % 4);
                for (uint32_t bs = 0; bs < 3; ++bs) lane.put({0, 3}, bs, 0, row);
                lane.publish(DispatchMode::kAsync);
            }
            for (size_t done = 0; done < lanes.size(); now_us += 1000) {
                wait.until(0, true, [&](Order order) { return scan.has_new(order); });
                scan.take(scheduler.decide(now_us, scan.scan(now_us), true));
                heartbeat.set_computing();
                for (const ReadyDescriptor& taken : scan.taken()) {
                    for (uint32_t bs = 0; bs < 3; ++bs) {
                        scan.put_result(taken.session, taken.micro_batch, bs, 0, row);
                    }
                    ++done;
                }
                scan.acknowledge_taken();
            }
            for (DispatchLane& lane : lanes) ASSERT_EQ(lane.poll(), RoundState::kReady);
            ASSERT_EQ(dispatch->peer(0, now_us).heartbeat.state, WorkerState::kComputing);
        }
        EXPECT_EQ(test::num_allocations() - before, 0u) << name_of(policy);
    }
}

class CountingTaker final : public NearReceiver {
  public:
    void on_message(std::span<const std::byte>, std::span<const std::byte>) override { ++num_; }
    size_t num() const { return num_; }

  private:
    size_t num_ = 0;
};

// Goal: a link between neighbours that has more to send than its ring holds allocates nothing, once
// it has had as much. Method: rounds of messages of which most have to wait, taken by the other
// end. Oracle: the count of allocations.
TEST(SteadyState, ABusyNearLinkAllocatesNothing) {
    constexpr size_t kMessages = 9;
    const auto door = NearDoor::make(true, 1).value();
    const auto from = NearLink::connect(door->address()).value();
    std::vector<std::unique_ptr<NearLink>> came;
    while (came.empty()) came = door->look(0);
    came.front()->on_socket();
    const std::vector<std::byte> payload(NearLink::kRingBytes / 3);
    const std::vector<std::byte> header(8);
    std::array<uint32_t, kMessages> num_in_flight{};
    CountingTaker taker;
    const auto run = [&](int num_rounds) {
        for (int round = 0; round < num_rounds; ++round) {
            const size_t num_before = taker.num();
            for (uint32_t& count : num_in_flight) from->send({header, payload, &count});
            while (taker.num() < num_before + kMessages && !from->has_failed()) {
                came.front()->take(taker);
                from->take(taker);
            }
        }
    };
    run(2);
    const uint64_t before = test::num_allocations();
    run(50);
    EXPECT_EQ(test::num_allocations() - before, 0u);
    EXPECT_FALSE(from->has_failed());
}

}  // namespace
}  // namespace afd::schedule
