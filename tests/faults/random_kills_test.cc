// SPDX-License-Identifier: Apache-2.0
//
// Random kills of workers under load, over topologies, routers and ways of dispatch.
//
// Method: kill_run.h. A few kills here; scripts/faults makes as many as it is asked for, and gives
// their number and the seed in the environment.
// Oracle: the replies of the undisturbed instance, token ids and log probabilities to the last bit.
// Nothing is said about times: they are printed.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iostream>

#include "tests/faults/kill_run.h"
#include "tests/faults/long_form.h"

namespace afd::test {
namespace {

// With fewer kills than this for each scenario, most of the time would go to starting instances.
constexpr uint64_t kKillsPerScenario = 8;

std::vector<KillScenario> scenarios() {
    std::vector<KillScenario> made;
    for (const uint32_t num_attention : {1, 2}) {
        for (const uint32_t num_ffn : {1, 2}) {
            for (const char* dispatch : {"auto", "window", "two_phase"}) {
                made.push_back({num_attention, num_ffn, "attention", dispatch});
            }
            // Rows that are routed at the experts go through the windows only.
            made.push_back({num_attention, num_ffn, "ffn", "window"});
            if (num_ffn == 1) continue;
            made.push_back({num_attention, num_ffn, "attention", "auto", true});
            made.push_back({num_attention, num_ffn, "ffn", "window", true});
        }
    }
    return made;
}

std::vector<KillScenario> scenarios_over_ucx(bool is_near) {
    std::vector<KillScenario> made;
    for (const uint32_t num_attention : {1, 2}) {
        for (const uint32_t num_ffn : {1, 2}) {
            made.push_back({num_attention, num_ffn, "attention", "two_phase", false, true});
            for (const char* router : {"attention", "ffn"}) {
                made.push_back({num_attention, num_ffn, router, "window", false, true});
                if (num_ffn == 1) continue;
                made.push_back({num_attention, num_ffn, router, "window", true, true});
            }
            if (num_ffn == 1) continue;
            made.push_back({num_attention, num_ffn, "attention", "two_phase", true, true});
        }
    }
    for (KillScenario& scenario : made) scenario.is_near = is_near;
    return made;
}

void kill_in(std::vector<KillScenario> chosen, uint64_t num_kills) {
    const uint64_t seed = from_environment("AFD_SEED", 1);
    std::mt19937 random(static_cast<uint32_t>(seed));
    std::shuffle(chosen.begin(), chosen.end(), random);
    const uint64_t num_chosen =
        std::clamp<uint64_t>(num_kills / kKillsPerScenario, 1, chosen.size());
    chosen.resize(num_chosen);
    KillReport report;
    for (uint64_t i = 0; i < num_chosen && !testing::Test::HasFailure(); ++i) {
        const uint64_t share = num_kills * (i + 1) / num_chosen - num_kills * i / num_chosen;
        SCOPED_TRACE(chosen[i].name() + ", seed " + std::to_string(seed));
        const auto run_seed = static_cast<uint32_t>(random());
        report.add(KillRun(chosen[i], run_seed).run(share));
        std::cout << report.num_kills << " kills so far, the last " << share << " times with "
                  << chosen[i].name() << std::endl;
    }
    std::cout << report.text();
    EXPECT_EQ(report.num_segments_left, 0U);
    // A descriptor a kill would be many more; a log that is reopened, or a client, may be one.
    EXPECT_LE(report.num_descriptors_more, 1);
    if (const char* file = std::getenv("AFD_KILLS_REPORT")) std::ofstream(file) << report.text();
}

TEST(RandomKills, LoseDoubleAndChangeNothing) {
    kill_in(scenarios(), from_environment("AFD_KILLS", 24));
}

#ifdef AFD_HAS_UCX
TEST(RandomKillsOverUcx, LoseDoubleAndChangeNothing) {
    kill_in(scenarios_over_ucx(false), from_environment("AFD_KILLS", 8));
}

TEST(RandomKillsThroughMemory, LoseDoubleAndChangeNothing) {
    kill_in(scenarios_over_ucx(true), from_environment("AFD_KILLS", 8));
}

std::vector<KillScenario> scenarios_over_hosts(bool has_wire) {
    std::vector<KillScenario> made;
    for (const bool has_replicas : {false, true}) {
        for (const char* router : {"attention", "ffn"}) {
            made.push_back({2, 2, router, "window", has_replicas, true, true});
        }
        made.push_back({2, 2, "attention", "two_phase", has_replicas, true, true});
    }
    if (!has_wire) return made;
    for (KillScenario& scenario : made) scenario.has_wire = true;
    std::vector<KillScenario> bad = made;
    for (KillScenario& scenario : bad) scenario.is_bad = true;
    made.insert(made.end(), bad.begin(), bad.end());
    return made;
}

// All over TCP, as if no two workers were of one host.
TEST(RandomKillsOverHosts, LoseDoubleAndChangeNothing) {
    kill_in(scenarios_over_hosts(false), from_environment("AFD_KILLS", 8));
}

#ifdef AFD_HAS_WIRE
// Each host with a network of its own: an attention worker has an FFN worker beside it, and one
// that is far.
TEST(RandomKillsOverAWire, LoseDoubleAndChangeNothing) {
    kill_in(scenarios_over_hosts(true), from_environment("AFD_KILLS", 8));
}
#endif
#endif

}  // namespace
}  // namespace afd::test
