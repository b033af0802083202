// SPDX-License-Identifier: Apache-2.0
//
// The protocol body as threads over one mapping; see protocol_body.h for goal, method and oracle.
// Run under the thread sanitizer it also proves that no access to rows and ids is a data race.
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "tests/schedule/local_instance.h"
#include "tests/schedule/protocol_body.h"
#include "tests/schedule/watchdog.h"

namespace afd::schedule::stress {
namespace {

constexpr std::memory_order kRelaxed = std::memory_order_relaxed;  // See Progress.

class Threads {
  public:
    explicit Threads(const Params& params) : params_(params), instance_(stress_geometry()) {}

    LocalInstance& instance() { return instance_; }
    const Progress& progress() const { return progress_; }

    // Runs every role until all sessions have done their rounds. A role that dies is followed by
    // a new life with fresh private state, as the supervisor would start it.
    void run() {
        const Watchdog watchdog(240);
        std::vector<std::thread> ranks;
        std::vector<std::thread> sessions;
        for (uint32_t f = 0; f < stress_geometry().num_ffn_workers; ++f) {
            ranks.emplace_back([this, f] {
                while (!live_as_ffn(f)) continue;
            });
        }
        for (uint32_t s = 0; s < stress_geometry().num_sessions; ++s) {
            sessions.emplace_back([this, s] {
                while (!live_as_attention(s)) continue;
            });
        }
        for (std::thread& session : sessions) session.join();
        progress_.stop.store(1, kRelaxed);
        instance_.dispatch(0)->ring_peers();
        for (std::thread& rank : ranks) rank.join();

        EXPECT_EQ(progress_.failed.load(kRelaxed), 0u);
        for (uint32_t s = 0; s < stress_geometry().num_sessions; ++s) {
            EXPECT_GE(progress_.rounds_done[s].load(kRelaxed), params_.rounds_per_session);
        }
    }

  private:
    bool live_as_attention(uint32_t session) {
        Fate fate(params_, progress_, false);
        const auto real = instance_.dispatch(session);
        MortalDispatch transport(*real, fate);
        return run_attention(
            transport, real->doorbell(), instance_.layout(), session, params_, progress_, fate);
    }
    bool live_as_ffn(uint32_t rank) {
        Fate fate(params_, progress_, false);
        const auto real = instance_.returns(rank);
        MortalReturn transport(*real, fate);
        return run_ffn(transport,
                       real->doorbell(),
                       real->own_control(),
                       instance_.layout(),
                       rank,
                       params_,
                       progress_,
                       fate);
    }

    Params params_;
    LocalInstance instance_;
    Progress progress_;
};

TEST(ProtocolThreads, DeliverEveryRowWithEveryPolicy) {
    for (const auto policy :
         {FfnPolicy::kAny, FfnPolicy::kGather, FfnPolicy::kAll, FfnPolicy::kGroups}) {
        SCOPED_TRACE(std::string(name_of(policy)));
        Params params;
        params.policy = policy;
        Threads(params).run();
    }
}

TEST(ProtocolThreads, DeliverEveryRowWithSyncDispatch) {
    Params params;
    params.mode = DispatchMode::kSync;
    params.policy = FfnPolicy::kAll;
    Threads(params).run();
}

TEST(ProtocolThreads, DeliverEveryRowOfOfferedTokens) {
    for (const auto mode : {DispatchMode::kAsync, DispatchMode::kSync}) {
        Params params;
        params.mode = mode;
        params.router = RouterPlacement::kFfn;
        Threads(params).run();
    }
}

TEST(ProtocolThreads, SurviveDeathsWithOfferedTokens) {
    Params params;
    params.router = RouterPlacement::kFfn;
    params.crash_one_in = 40;
    params.seed = 5;
    Threads threads(params);
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
        Threads threads(params);
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
        Threads threads(params);
        LocalInstance& instance = threads.instance();
        age_rounds(
            stress_geometry(),
            [&](uint32_t f, uint32_t s, uint32_t m) { return instance.descriptor(f, s, m); },
            [&](uint32_t f, uint32_t s, uint32_t m) { return instance.acknowledged(f, s, m); },
            [&](uint32_t s, uint32_t m, uint32_t bs, uint32_t k) {
                return instance.result_flag(s, m, bs, k);
            });
        threads.run();
    }
}

}  // namespace
}  // namespace afd::schedule::stress
