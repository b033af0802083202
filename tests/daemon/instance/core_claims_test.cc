// SPDX-License-Identifier: Apache-2.0
//
// Goal: two instances of one machine that each leave cores over do not share any. Method: two
// objects with one directory, as two processes have; a topology of the test's own. Oracle: by hand.
#include "daemon/instance/core_claims.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

#include "tests/temporary_directory.h"

namespace afd::daemon {
namespace {

using ::testing::ElementsAre;

class CoreClaimsTest : public ::testing::Test {
  protected:
    // Four cores of two threads each: 0 and 4, 1 and 5, ...
    void write_topology() {
        for (uint32_t core = 0; core < 8; ++core) {
            const std::string path = directory_.path("cpu" + std::to_string(core)) + "/topology";
            std::filesystem::create_directories(path);
            std::ofstream(path + "/thread_siblings_list")
                << core % 4 << "," << core % 4 + 4 << "\n";
        }
    }
    CoreClaims claims() const { return CoreClaims(directory_.path(), directory_.path()); }

    static Config config_with(uint64_t threads) {
        Config config;
        config.attention_workers = config.ffn_workers = 1;
        config.attention_threads = config.ffn_threads = threads;
        config.pin = "auto";
        return config;
    }
    CpuPlan plan_of(const CoreClaims& claims, const Config& config) const {
        return claims
            .plan(allowed_,
                  [&](const std::vector<uint32_t>& cores) { return plan_cpus(config, cores); })
            .value();
    }
    std::vector<uint32_t> cores_of(const CoreClaims& claims, const Config& config) const {
        const CpuPlan plan = plan_of(claims, config);
        std::vector<uint32_t> cores = plan.attention[0].cpus;
        cores.insert(cores.end(), plan.ffn[0].cpus.begin(), plan.ffn[0].cpus.end());
        return cores;
    }

    const test::TemporaryDirectory directory_;
    const std::vector<uint32_t> allowed_ = {0, 1, 2, 3, 4, 5, 6, 7};
};

TEST_F(CoreClaimsTest, TheNextInstanceTakesOtherCores) {
    const CoreClaims first = claims();
    std::optional<CoreClaims> second(std::in_place, directory_.path(), directory_.path());
    const CoreClaims third = claims();
    EXPECT_THAT(cores_of(first, config_with(2)), ElementsAre(0, 1, 2, 3));
    EXPECT_THAT(cores_of(*second, config_with(1)), ElementsAre(4, 5));
    EXPECT_THAT(cores_of(third, config_with(2)), ElementsAre(0, 1, 6, 7)) << "what is left, first";
    // The same instance again, as at a resize.
    EXPECT_THAT(cores_of(first, config_with(1)), ElementsAre(2, 3))
        << "its own are free to it, but for those that it shares";
    second.reset();
    EXPECT_THAT(cores_of(claims(), config_with(2)), ElementsAre(0, 1, 4, 5))
        << "what the second had, first";
}

// As at an upgrade: the next afdd plans while the one before it has its claims.
TEST_F(CoreClaimsTest, WhoSharesACoreKeepsItsClaimWhenTheOtherEnds) {
    std::optional<CoreClaims> first(std::in_place, directory_.path(), directory_.path());
    const CoreClaims successor = claims();
    EXPECT_THAT(cores_of(*first, config_with(2)), ElementsAre(0, 1, 2, 3));
    EXPECT_THAT(cores_of(successor, config_with(3)), ElementsAre(0, 1, 4, 5, 6, 7));
    first.reset();
    EXPECT_THAT(cores_of(claims(), config_with(1)), ElementsAre(2, 3));
}

// As at a resize: both crews run until the one that stays is known.
TEST_F(CoreClaimsTest, APlanAddsClaimsUntilOneIsHeldAlone) {
    const CoreClaims first = claims();
    const CoreClaims second = claims();
    const CoreClaims third = claims();
    EXPECT_THAT(cores_of(first, config_with(2)), ElementsAre(0, 1, 2, 3));
    const CpuPlan small = plan_of(first, config_with(1));
    EXPECT_THAT(small.attention[0].cpus, ElementsAre(0));
    EXPECT_THAT(small.ffn[0].cpus, ElementsAre(1));
    EXPECT_THAT(cores_of(second, config_with(1)), ElementsAre(4, 5)) << "those of both are taken";
    first.hold(small);
    EXPECT_THAT(cores_of(third, config_with(1)), ElementsAre(2, 3)) << "given up";
}

// Another instance looks all the while. Oracle: the core of both plans is never among the free
// ones.
TEST_F(CoreClaimsTest, WhatIsHeldOnIsFreeAtNoMoment) {
    const CoreClaims first = claims();
    const CoreClaims other = claims();
    plan_of(first, config_with(2));
    const CpuPlan small = plan_of(first, config_with(1));
    std::atomic<bool> is_done = false;
    std::thread holding([&] {
        for (int i = 0; i < 20'000; ++i) first.hold(small);
        is_done.store(true, std::memory_order_relaxed);  // Partner: the load below.
    });
    size_t num_free = 0;
    while (!is_done.load(std::memory_order_relaxed)) {
        // Where 0 is free, it comes before 7, which nobody claims.
        if (other.by_preference({0, 7}, 1).front() == 0) ++num_free;
    }
    holding.join();
    EXPECT_EQ(num_free, 0u);
}

TEST_F(CoreClaimsTest, OneThreadOfEachCoreComesBeforeTheSecond) {
    write_topology();
    const CoreClaims first = claims();
    const CoreClaims second = claims();
    EXPECT_THAT(first.by_preference(allowed_, 3), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
    EXPECT_THAT(first.by_preference({0, 4, 1, 5}, 2), ElementsAre(0, 1, 4, 5));
    EXPECT_THAT(cores_of(first, config_with(1)), ElementsAre(0, 1));
    EXPECT_THAT(cores_of(second, config_with(1)), ElementsAre(2, 3));
}

TEST_F(CoreClaimsTest, APlanThatUsesAllCoresIsAsItWas) {
    write_topology();
    const CoreClaims first = claims();
    const CoreClaims second = claims();
    EXPECT_THAT(cores_of(first, config_with(1)), ElementsAre(0, 1));
    EXPECT_THAT(cores_of(second, config_with(4)), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
}

// Without a runtime directory to write into there are no claims, and everything else is as ever.
TEST_F(CoreClaimsTest, WhereNothingCanBeClaimedTheFirstCoresAreTaken) {
    const CoreClaims lost(directory_.path("missing"), directory_.path("missing"));
    EXPECT_THAT(cores_of(lost, config_with(1)), ElementsAre(0, 1));
}

}  // namespace
}  // namespace afd::daemon
