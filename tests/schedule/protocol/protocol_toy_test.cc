// SPDX-License-Identifier: Apache-2.0
//
// The protocol over a transport that shares no memory.
//
// Goal: the rules hold over any transport that keeps the contract of
// schedule/transport/transport.h: messages that arrive late, mixed across lanes and between
// barriers, and whose last ones are lost with their sender. Method: the protocol body as threads
// over ToyNetwork, with and without deaths. Oracle: that of protocol_body.h: no stale or torn row
// is accepted, every session finishes.
#include <gtest/gtest.h>

#include "schedule/dispatch/dispatch_lane.h"
#include "tests/schedule/protocol/protocol_threads.h"
#include "tests/schedule/transport/toy_network.h"

namespace afd::schedule::stress {
namespace {

Params toy_params() {
    Params params;
    params.rounds_per_session = 300;
    return params;
}

TEST(ProtocolToy, DeliversEveryRowWithEveryPolicy) {
    for (const auto policy :
         {FfnPolicy::kAny, FfnPolicy::kGather, FfnPolicy::kAll, FfnPolicy::kGroups}) {
        SCOPED_TRACE(std::string(name_of(policy)));
        Params params = toy_params();
        params.policy = policy;
        Threads<ToyNetwork>(params).run();
    }
}

TEST(ProtocolToy, DeliversEveryRowOfOfferedTokens) {
    for (const auto mode : {DispatchMode::kAsync, DispatchMode::kSync}) {
        Params params = toy_params();
        params.mode = mode;
        params.router = RouterPlacement::kFfn;
        Threads<ToyNetwork>(params).run();
    }
}

TEST(ProtocolToy, SurvivesDeathsAtEveryPoint) {
    for (const auto router : {RouterPlacement::kAttention, RouterPlacement::kFfn}) {
        Params params = toy_params();
        params.router = router;
        params.crash_one_in = 40;
        params.seed = 3;
        Threads<ToyNetwork> threads(params);
        threads.run();
        expect_every_point_killed(threads.progress());
        expect_refusals_explained(threads.progress());
    }
}

TEST(ProtocolToy, SurvivesDeathsAroundTheWrapOfRoundNumbers) {
    for (uint64_t seed = 1; seed <= 5; ++seed) {
        SCOPED_TRACE(seed);
        Params params = toy_params();
        params.rounds_per_session = 30;
        params.crash_one_in = 30;
        params.policy = FfnPolicy::kAny;
        params.seed = seed;
        Threads<ToyNetwork> threads(params);
        threads.age();
        threads.run();
    }
}

// Goal: what is read of a peer is a mirror: it comes by itself, and late. Oracle: the heartbeat
// that the peer wrote, on another machine; the flag that a predecessor left.
TEST(ToyTransport, MirrorsHeartbeatsAndKnowsThePredecessorsFlags) {
    const Geometry geometry = small_geometry();
    ToyNetwork network(geometry);
    const auto returns = network.returns(1);
    returns->heartbeat().start(321);
    const std::vector<int32_t> ids(geometry.slots_per_micro_batch(), kMaskedId);
    {
        const auto predecessor = network.dispatch(0);
        predecessor->publish(1, 1, 0, ids, 7);
        const uint64_t deadline_us = steady_now_us() + 30'000'000;
        while (returns->descriptor_flags().at(1, Order::kAcquire) != 7 ||
               predecessor->peer(1, 0).heartbeat.pid != 321) {
            ASSERT_LT(steady_now_us(), deadline_us);
            std::this_thread::yield();
        }
        EXPECT_EQ(predecessor->peer(0, 0).heartbeat.pid, 0);
    }
    EXPECT_EQ(network.dispatch(0)->descriptor_flag(1, 1), 7);
    EXPECT_EQ(network.dispatch(0)->descriptor_flag(0, 1), 0);
}

}  // namespace
}  // namespace afd::schedule::stress
