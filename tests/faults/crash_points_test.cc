// SPDX-License-Identifier: Apache-2.0
//
// Workers die at every named point of the code (proto/crash_point.h), alone and in pairs of an FFN
// and an attention worker.
//
// Method: a real instance serves the same requests again and again, short ones through the windows
// and a long prompt in two phases; each time a point is armed in the middle of them. Points that
// nobody reaches while nobody dies, such as those of a start, are armed together with a death that
// leads to them.
// Oracle: the replies of the undisturbed instance, token ids and log probabilities to the last bit.
// The points are those of the sources: one that no process dies at fails the test.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <map>
#include <string>
#include <thread>

#include "tests/faults/crash_table.h"
#include "tests/faults/steady_load.h"
#include "tests/integration/background_generation.h"
#include "tests/integration/instance.h"
#include "tests/integration/workload.h"

namespace afd::test {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

using Points = std::vector<std::string>;

// What leads to a start, a replay and a takeover: deaths amid a two-phase round and a pass.
const Points kLeadingDeaths = {"send.published", "pass.computed"};

constexpr uint32_t kNumFfnWorkers = 2;
// Of all FFN workers together, whichever comes next: one of them has died three times then (R11).
constexpr uint64_t kDeathsUntilRefusal = kNumFfnWorkers * 2 + 1;

// Nearly every point kills in the first run; the rest of them is patience.
constexpr int kRunsMax = 10;

std::vector<client::Generate> requests() {
    constexpr uint32_t kLengths[] = {3, 40, 7, 400};
    std::vector<client::Generate> made;
    for (const uint32_t length : kLengths) {
        client::Generate request = long_request(length > 100 ? 6 : 30);
        request.clear_token_ids();
        for (uint32_t i = 0; i < length; ++i) {
            request.mutable_token_ids()->add_ids(3 + (i * 7 + length) % 200);
        }
        request.mutable_sampling()->set_temperature(0.8F);
        request.mutable_sampling()->set_seed(length);
        made.push_back(std::move(request));
    }
    return made;
}

// R12: where a worker goes on without another.
bool needs_replicas(const std::string& point) {
    return point.rfind("void.", 0) == 0;
}

// Where sequences grow beyond the KV cache.
bool needs_little_room(const std::string& point) {
    return point.rfind("preempt.", 0) == 0;
}

std::vector<std::string> flags(const std::string& router) {
    return {"--attention-workers",
            "1",
            "--ffn-workers",
            std::to_string(kNumFfnWorkers),
            "--router",
            router,
            "--two-phase-block",
            "64",
            // A prompt that was computed before would not be long any more.
            "--prefix-cache",
            "false",
            "--restart-first-ms",
            "1",
            "--restart-max-ms",
            "1",
            "--start-attempts",
            "1000",
            // No data thread stands still so long; one that does is told by the log, and not only
            // by a wait in vain.
            "--hang-timeout-ms",
            "20000"};
}

class CrashPoints : public testing::Test {
  protected:
    explicit CrashPoints(const std::vector<std::string>& all_flags = flags("attention"),
                         std::vector<client::Generate> sent = requests())
        : instance_(all_flags), requests_(std::move(sent)) {
        instance_.wait_ready();
        // Twice: the first time fills what is made at the first use.
        run_all_at_once(instance_, requests_);
        std::map<std::string, uint64_t> before;
        for (const std::string& name : table_.names()) before[name] = table_.hits(name);
        expected_ = run_all_at_once(instance_, requests_);
        for (const std::string& name : table_.names()) {
            hits_[name] = table_.hits(name) - before[name];
        }
    }

    // Nobody stood still, however soon it was over for whoever waited.
    void TearDown() override {
        EXPECT_THAT(instance_.log(), Not(HasSubstr("no progress for")));
        // afdd is asked each second.
        EXPECT_THAT(instance_.log(),
                    Not(ContainsRegex("waits for afdd to make .*asked for 10 ti")));
    }

    // In the middle of its hits of an undisturbed run; of a point that has none, at the first.
    void arm(const std::string& name) { table_.arm(name, 1 + hits_[name] / 2); }

    // What leads to points that nobody reaches while nobody dies.
    void arm_leading_deaths(const Points& points) {
        const bool needs_lead = std::any_of(
            points.begin(), points.end(), [this](const auto& name) { return hits_[name] == 0; });
        if (!needs_lead) return;
        for (const std::string& name : kLeadingDeaths) arm(name);
    }

    // Arms by `arm_more` and the points, serves the requests and judges the replies by `judge`,
    // until each of the points killed somebody in the same run: how often a point is reached, and
    // by which worker, is chance.
    template <typename Arm, typename Judge>
    void run_until_deaths_at(const Points& points, const Arm& arm_more, const Judge& judge) {
        std::string missed;
        for (int run = 0; run < kRunsMax; ++run) {
            std::vector<uint64_t> before;
            for (const std::string& name : points) before.push_back(table_.deaths(name));
            arm_more();
            for (const std::string& name : points) arm(name);
            const std::vector<Reply> found = run_all_at_once(instance_, requests_);
            table_.disarm_all();
            judge(found);
            instance_.wait_ready();
            missed.clear();
            for (size_t i = 0; i < points.size(); ++i) {
                if (table_.deaths(points[i]) == before[i]) missed += " " + points[i];
            }
            if (missed.empty() || HasFailure()) return;
            std::cout << "nobody died at" << missed << " in run " << run << std::endl;
        }
        ADD_FAILURE() << "nobody died at" << missed << " in " << kRunsMax << " runs";
    }

    // Each of the points kills, and the replies are as if it had not. `deadly`: a point that kills
    // besides, until the batch is refused.
    void expect_same_bits_through_deaths_at(const Points& points, const std::string& deadly = "") {
        std::string what = "deaths at";
        for (const std::string& name : points) what += " " + name;
        SCOPED_TRACE(what);
        run_until_deaths_at(
            points,
            [&] {
                arm_leading_deaths(points);
                if (!deadly.empty()) table_.arm(deadly, 1, kDeathsUntilRefusal);
            },
            [&](const std::vector<Reply>& found) { expect_same_bits(expected_, found, what); });
    }

    // R11: what kills three FFN workers is refused, and its requests alone end with an error, also
    // if a fourth dies while it refuses.
    void expect_refusal_through_death_at(const std::string& name, const std::string& deadly) {
        SCOPED_TRACE(name + " after deaths at " + deadly);
        run_until_deaths_at(
            {name},
            [&] { table_.arm(deadly, 1 + hits_[deadly] / 2, kDeathsUntilRefusal); },
            [this](const std::vector<Reply>& found) {
                for (size_t i = 0; i < found.size(); ++i) {
                    if (found[i].error.empty()) {
                        EXPECT_EQ(found[i], expected_[i]) << "request " << i;
                    } else {
                        EXPECT_NE(found[i].error.find("has killed the worker 3 times"),
                                  std::string::npos)
                            << found[i].error;
                    }
                }
            });
    }

    // Points that workers of a role reach while nobody dies.
    Points points_of(const std::string& role) const {
        const std::vector<pid_t> pids = instance_.worker_pids(role);
        Points points;
        for (const std::string& name : table_.names()) {
            if (hits_.at(name) > 0 && std::count(pids.begin(), pids.end(), table_.last_pid(name))) {
                points.push_back(name);
            }
        }
        return points;
    }

    // Before the instance: its programs inherit the environment.
    CrashTable table_;
    Instance instance_;
    const std::vector<client::Generate> requests_;
    std::vector<Reply> expected_;
    std::map<std::string, uint64_t> hits_;  // In an undisturbed run.
};

TEST_F(CrashPoints, EachAlone) {
    ASSERT_GT(table_.names().size(), 50U);
    for (const std::string& name : table_.names()) {
        if (needs_replicas(name) || needs_little_room(name)) continue;
        if (name == "refuse.slot_marked") {
            expect_refusal_through_death_at(name, "pass.computed");
        } else if (name == "refuse.round_marked") {
            // The batch goes through the windows instead: nobody sees the refusal.
            expect_same_bits_through_deaths_at({name}, "block.computed");
        } else {
            expect_same_bits_through_deaths_at({name});
        }
        if (HasFailure()) break;
    }
    EXPECT_EQ(instance_.stop(), 0);
}

// A resize is a start of workers beside others, and the end of those: it has no step of a worker
// that is its own. So a worker dies at each of the others while it runs, an old one or a new one.
TEST_F(CrashPoints, EachInAResize) {
    std::string missed;
    bool is_large = false;
    SteadyLoad load(instance_, requests_, expected_, 4);
    for (const std::string& name : table_.names()) {
        // R11's need many deaths, and have nothing to do with it.
        if (needs_replicas(name) || needs_little_room(name) || name.rfind("refuse.", 0) == 0) {
            continue;
        }
        SCOPED_TRACE("a death at " + name);
        is_large = !is_large;
        const uint64_t before = table_.deaths(name);
        // Soon: a resize takes less time than the requests.
        table_.arm(name, 1 + hits_[name] / 16);
        const Outcome outcome = instance_.afdctl(
            {"resize", "--attention", is_large ? "2" : "1", "--ffn", is_large ? "3" : "2"});
        EXPECT_EQ(outcome.exit_status, 0) << outcome.output;
        // On a busy machine the resize may be over before: then it is one of the new workers.
        for (int i = 0; i < kRunsMax && table_.deaths(name) == before && !HasFailure(); ++i) {
            load.wait_for_replies(4);
        }
        table_.disarm_all();
        if (!HasFailure()) load.wait_for_replies(4);
        if (table_.deaths(name) == before) missed += " " + name;
        if (HasFailure()) break;
    }
    load.finish();
    // Those of a takeover, for example, need a second death.
    EXPECT_LE(std::count(missed.begin(), missed.end(), ' '), 8) << missed;
    std::cout << "nobody died at" << missed << std::endl;
    EXPECT_EQ(instance_.status().num_failed(), 0U);
    EXPECT_EQ(instance_.stop(), 0);
}

class CrashPointsWithRoutersAtTheExperts : public CrashPoints {
  protected:
    CrashPointsWithRoutersAtTheExperts() : CrashPoints(flags("ffn")) {}
};

// Rows are offered there, and weights come back with the results. No two phases.
TEST_F(CrashPointsWithRoutersAtTheExperts, EachAlone) {
    for (const char* role : {"ffn", "attention"}) {
        for (const std::string& name : points_of(role)) {
            if (!HasFailure()) expect_same_bits_through_deaths_at({name});
        }
    }
    EXPECT_EQ(instance_.stop(), 0);
}

std::vector<std::string> flags_with_little_room() {
    std::vector<std::string> all = flags("attention");
    all.insert(all.end(), {"--kv-tokens", "1024"});
    return all;
}

// Which come to need more than there is.
std::vector<client::Generate> growing_requests() {
    std::vector<client::Generate> made = requests();
    for (client::Generate& request : made) request.set_max_tokens(450);
    return made;
}

class CrashPointsWithLittleRoom : public CrashPoints {
  protected:
    CrashPointsWithLittleRoom() : CrashPoints(flags_with_little_room(), growing_requests()) {}
};

// Alone, and with a death where the sequence that has given way ends or begins again.
TEST_F(CrashPointsWithLittleRoom, EachStepOfAPreemption) {
    size_t num_steps = 0;
    for (const std::string& name : table_.names()) {
        if (!needs_little_room(name)) continue;
        ++num_steps;
        EXPECT_GT(hits_.at(name), 0U) << name;
        expect_same_bits_through_deaths_at({name});
        for (const char* other : {"emit.end_pushed", "replay.started", "pass.returned"}) {
            if (!HasFailure()) expect_same_bits_through_deaths_at({name, other});
        }
    }
    EXPECT_GE(num_steps, 1U);
    EXPECT_EQ(instance_.stop(), 0);
}

std::vector<std::string> flags_with_replicas(const std::string& router) {
    std::vector<std::string> all = flags(router);
    all.insert(all.end(), {"--expert-placement", "replicas:" + std::to_string(kNumFfnWorkers)});
    // Time to be without the worker.
    for (const char* option : {"--restart-first-ms", "--restart-max-ms"}) {
        *(std::find(all.begin(), all.end(), option) + 1) = "20";
    }
    return all;
}

class CrashPointsWithReplicas : public CrashPoints {
  protected:
    explicit CrashPointsWithReplicas(const std::string& router = "attention")
        : CrashPoints(flags_with_replicas(router)) {}

    void expect_same_bits_through_each_step(const Points& second) {
        size_t num_steps = 0;
        for (const std::string& name : table_.names()) {
            if (!needs_replicas(name)) continue;
            ++num_steps;
            if (!HasFailure()) expect_same_bits_through_deaths_at({name});
            for (const std::string& other : second) {
                if (!HasFailure()) expect_same_bits_through_deaths_at({name, other});
            }
        }
        EXPECT_GE(num_steps, 5U);
        EXPECT_EQ(instance_.stop(), 0);
    }
};

// R12: each of its steps, alone and together with a second death of an FFN worker at each step of a
// pass.
TEST_F(CrashPointsWithReplicas, EachStepOfAFailover) {
    expect_same_bits_through_each_step(
        {"pass.taken", "pass.returned", "acknowledge.execution_ended"});
}

class CrashPointsWithReplicasAndRouters : public CrashPointsWithReplicas {
  protected:
    CrashPointsWithReplicasAndRouters() : CrashPointsWithReplicas("ffn") {}
};

// Likewise where rows are offered to all ranks but the lost one.
TEST_F(CrashPointsWithReplicasAndRouters, EachStepOfAFailover) {
    expect_same_bits_through_each_step({"pass.returned"});
}

// Each point of one role with one of the other; AFD_CRASH_PAIRS=all: with each of the other.
TEST_F(CrashPoints, InPairsOfAnFfnAndAnAttentionWorker) {
    const Points ffn = points_of("ffn");
    const Points attention = points_of("attention");
    ASSERT_GT(ffn.size(), 10U);
    ASSERT_GT(attention.size(), 8U);
    const char* pairs = std::getenv("AFD_CRASH_PAIRS");
    const bool is_long = pairs != nullptr && std::string(pairs) == "all";
    const size_t num_pairs =
        is_long ? ffn.size() * attention.size() : std::max(ffn.size(), attention.size());
    for (size_t i = 0; i < num_pairs && !HasFailure(); ++i) {
        const size_t other = is_long ? i / ffn.size() : i % attention.size();
        expect_same_bits_through_deaths_at({ffn[i % ffn.size()], attention[other]});
    }
    std::cout << num_pairs << " pairs\n";
    EXPECT_EQ(instance_.stop(), 0);
}

}  // namespace
}  // namespace afd::test
