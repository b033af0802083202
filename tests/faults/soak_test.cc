// SPDX-License-Identifier: Apache-2.0
//
// A long run under load with kills: nothing grows, and nothing gets slower.
//
// Method: soak_run.h. A short run here; scripts/faults --soak SECONDS runs as long as it is told,
// and gives the numbers in the environment.
// Oracle: the replies of the undisturbed instance, to the last bit; descriptors and segments of
// afdd before the first request and behind the last. Times and memory are printed.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iostream>

#include "tests/faults/long_form.h"
#include "tests/faults/soak_run.h"

namespace afd::test {
namespace {

TEST(Soak, LosesNothingAndGrowsInNothing) {
    SoakRun::Settings settings;
    settings.seconds = static_cast<double>(from_environment("AFD_SOAK_SECONDS", 6));
    settings.window_seconds = std::min(600.0, settings.seconds / 3);
    settings.kill_seconds = static_cast<double>(from_environment("AFD_SOAK_KILL_SECONDS", 2));
    // For a second run beside it, or behind it, on a core of its own: a control.
    settings.requests_per_second = static_cast<double>(from_environment("AFD_SOAK_RATE", 0));
    settings.has_control = from_environment("AFD_SOAK_CONTROL", 0) != 0;
    settings.seed = static_cast<uint32_t>(from_environment("AFD_SEED", 1));
    const SoakReport report = SoakRun(settings).run();
    std::cout << report.text();
    EXPECT_EQ(report.num_wrong, 0U);
    EXPECT_GT(report.num_requests, 0U);
    EXPECT_GE(report.num_kills, 1U);
    // A log that is reopened, or a client, may be one.
    EXPECT_LE(report.num_descriptors_more, 1);
    EXPECT_LE(report.num_segments_more, 0);
    if (const char* file = std::getenv("AFD_KILLS_REPORT")) std::ofstream(file) << report.text();
}

// Goal: with a control there is something to compare with in each window, of the same bits.
TEST(Soak, TakesTurnsWithANewInstance) {
    const SoakReport report =
        SoakRun({.seconds = 8, .window_seconds = 2, .kill_seconds = 2, .has_control = true}).run();
    EXPECT_EQ(report.num_wrong, 0U);
    for (const int window : {0, 1}) {
        EXPECT_FALSE(report.old_times[window].end_ms.empty()) << window;
        EXPECT_FALSE(report.control_times[window].end_ms.empty()) << window;
    }
    EXPECT_NE(report.text().find("old to new"), std::string::npos) << report.text();
}

}  // namespace
}  // namespace afd::test
