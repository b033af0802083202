// SPDX-License-Identifier: Apache-2.0
//
// dispatch_mode = sync on the real system.

#include <gtest/gtest.h>

#include <fstream>

#include "tests/integration/background_generation.h"
#include "tests/integration/workload.h"

namespace afd::test {
namespace {

// All of the demo model's routed experts on rank 0.
std::string all_on_one_rank() {
    const std::string path = make_directory() + "/placement.json";
    std::ofstream file(path);
    file << R"({"experts": [[0])";
    for (int expert = 1; expert < 16; ++expert) file << ", [0]";
    file << "]}";
    return path;
}

std::vector<client::Generate> mode_requests() {
    return mixed_requests(6, 257, 31);
}

std::vector<Reply> colocated_mode_replies() {
    Instance instance({"--topology", "colocated", "--attention-threads", "1"});
    instance.wait_ready();
    return run_one_after_another(instance, mode_requests());
}

// How often session 0 waited for a rank.
uint64_t waits_for(const client::Status& status, uint32_t rank) {
    for (const client::Distribution& of : status.workers(0).distributions()) {
        if (of.name() == "wait for ffn " + std::to_string(rank)) return of.count();
    }
    return 0;
}

// Goal: sync tells a worker of rounds that have no row for it, async does not; the bits are the
// same. Method: rank 1 holds no routed expert, and session 0 has the others on rank 0, so that only
// sync gives it rounds. Oracle: how often the session waited for each; one colocated thread.
TEST(DispatchMode, SyncTellsEveryWorkerOfEveryRound) {
    const std::vector<Reply> expected = colocated_mode_replies();
    for (const std::string mode : {"async", "sync"}) {
        Instance instance({"--ffn-workers",
                           "2",
                           "--expert-placement",
                           all_on_one_rank(),
                           "--dispatch",
                           "window",
                           "--dispatch-mode",
                           mode});
        instance.wait_ready();
        expect_same_bits(expected, run_all_at_once(instance, mode_requests()), mode);
        const client::Status status = instance.status();
        EXPECT_GT(waits_for(status, 0), 0U);
        EXPECT_EQ(waits_for(status, 1), mode == "sync" ? waits_for(status, 0) : 0U);
        EXPECT_EQ(instance.stop(), 0);
    }
}

// Goal: sync keeps the promises: a killed worker that has no rows is waited for, too.
TEST(DispatchMode, SyncRoundsSurviveAKilledWorkerWithoutRows) {
    Instance instance({"--ffn-workers",
                       "2",
                       "--expert-placement",
                       all_on_one_rank(),
                       "--dispatch-mode",
                       "sync",
                       "--stop-timeout-ms",
                       "0"});
    instance.wait_ready();
    expect_same_bits_through_kills(instance, long_request(300), {{"ffn", 1}, {"ffn", 0}});
    EXPECT_EQ(instance.stop(), 0);
}

}  // namespace
}  // namespace afd::test
