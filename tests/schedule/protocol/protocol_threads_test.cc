// SPDX-License-Identifier: Apache-2.0
//
// The protocol body as threads over one mapping; see protocol_body.h for goal, method and oracle.
// Run under the thread sanitizer it also proves that no access to rows and ids is a data race.
#include <gtest/gtest.h>

#include "tests/schedule/protocol/local_instance.h"
#include "tests/schedule/protocol/protocol_threads.h"

namespace afd::schedule::stress {
namespace {

TEST(ProtocolThreads, DeliverEveryRowWithEveryPolicy) {
    for (const auto policy :
         {FfnPolicy::kAny, FfnPolicy::kGather, FfnPolicy::kAll, FfnPolicy::kGroups}) {
        SCOPED_TRACE(std::string(name_of(policy)));
        Params params;
        params.policy = policy;
        Threads<LocalInstance>(params).run();
    }
}

TEST(ProtocolThreads, DeliverEveryRowWithSyncDispatch) {
    Params params;
    params.mode = DispatchMode::kSync;
    params.policy = FfnPolicy::kAll;
    Threads<LocalInstance>(params).run();
}

TEST(ProtocolThreads, DeliverEveryRowOfOfferedTokens) {
    for (const auto mode : {DispatchMode::kAsync, DispatchMode::kSync}) {
        Params params;
        params.mode = mode;
        params.router = RouterPlacement::kFfn;
        Threads<LocalInstance>(params).run();
    }
}

TEST(ProtocolThreads, SurviveDeathsWithOfferedTokens) {
    Params params;
    params.router = RouterPlacement::kFfn;
    params.crash_one_in = 40;
    params.seed = 5;
    Threads<LocalInstance> threads(params);
    threads.run();
    expect_every_point_killed(threads.progress());
    expect_refusals_explained(threads.progress());
}

TEST(ProtocolThreads, SurviveDeathsAtEveryPoint) {
    for (const auto mode : {DispatchMode::kAsync, DispatchMode::kSync}) {
        Params params;
        params.mode = mode;
        params.crash_one_in = 40;
        params.seed = 3;
        Threads<LocalInstance> threads(params);
        threads.run();
        expect_every_point_killed(threads.progress());
        expect_refusals_explained(threads.progress());
    }
}

TEST(ProtocolThreads, SurviveDeathsAroundTheWrapOfRoundNumbers) {
    for (uint64_t seed = 1; seed <= 10; ++seed) {
        SCOPED_TRACE(seed);
        Params params;
        params.rounds_per_session = 30;
        params.crash_one_in = 30;
        params.policy = FfnPolicy::kAny;
        params.seed = seed;
        Threads<LocalInstance> threads(params);
        threads.age();
        threads.run();
    }
}

}  // namespace
}  // namespace afd::schedule::stress
