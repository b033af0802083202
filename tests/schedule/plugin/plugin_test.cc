// SPDX-License-Identifier: Apache-2.0
//
// Goal: a scheduler of a shared library takes part, and one that answers nonsense harms nobody.
// Method: real libraries, built by this test's CMakeLists.txt. Oracle: what the example's contract
// says, computed by hand; the texts of the refusals.
#include "schedule/plugin/plugin_scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace afd::schedule {
namespace {

using testing::HasSubstr;

constexpr AfdSchedulerConfig kConfig{.num_sessions = 2, .num_micro_batches = 2, .deadline_us = 200};

std::unique_ptr<PluginScheduler> scheduler_of(const std::string& path) {
    const auto library = PluginLibrary::open(path);
    EXPECT_TRUE(library.ok()) << library.error().message;
    auto scheduler = PluginScheduler::create(library.value(), kConfig);
    EXPECT_TRUE(scheduler.ok()) << scheduler.error().message;
    return std::move(scheduler).value();
}

ReadyDescriptor descriptor(uint32_t session, uint32_t micro_batch, uint64_t ready_us) {
    return {.session = session,
            .micro_batch = micro_batch,
            .layer_id = 0,
            .round = 1,
            .order = ready_us,
            .ready_us = ready_us};
}

TEST(Plugin, TheExampleServesSessionsInTurns) {
    const auto scheduler = scheduler_of(AFD_EXAMPLE_PLUGIN);
    const std::vector<ReadyDescriptor> ready = {
        descriptor(1, 0, 10), descriptor(0, 0, 20), descriptor(0, 1, 30)};
    const auto first = scheduler->decide(40, ready, true);
    ASSERT_EQ(first.size(), 1u);
    EXPECT_EQ(first[0].session, 0u);
    EXPECT_EQ(first[0].micro_batch, 0u);
    const auto second = scheduler->decide(41, ready, true);
    ASSERT_EQ(second.size(), 1u);
    EXPECT_EQ(second[0].session, 1u);
    // Session 0 again; if only session 1 is ready it waits for its deadline.
    const std::vector<ReadyDescriptor> other = {descriptor(1, 1, 50)};
    EXPECT_TRUE(scheduler->decide(60, other, true).empty());
    EXPECT_EQ(scheduler->decide_again_us(), 250u);
    EXPECT_EQ(scheduler->decide(250, other, true).size(), 1u);
    EXPECT_EQ(scheduler->errors(), PassSchedulerErrors{});
    EXPECT_EQ(scheduler->name(), "'turns, blocks, last rank first' (" AFD_EXAMPLE_PLUGIN ")");
    EXPECT_TRUE(scheduler->decide(260, ready, false).empty()) << "it does not run";
}

TEST(Plugin, BadChoicesAreDroppedAndCounted) {
    const auto scheduler = scheduler_of(AFD_ROGUE_PLUGIN);
    const std::vector<ReadyDescriptor> ready = {
        descriptor(1, 0, 10), descriptor(1, 1, 20), descriptor(0, 1, 30), descriptor(0, 0, 31)};
    const auto taken = scheduler->decide(40, ready, true);
    ASSERT_GE(taken.size(), 1u);
    EXPECT_EQ(taken[0].session, 1u);
    EXPECT_LE(taken.size(), 2u) << "one of a session";
    EXPECT_GE(scheduler->errors().num_bad_choices, 2u);
}

TEST(Plugin, OneThatNeverDecidesIsOverruled) {
    const auto scheduler = scheduler_of(AFD_ROGUE_PLUGIN);
    const std::vector<ReadyDescriptor> ready = {descriptor(0, 0, 1000), descriptor(1, 0, 2000)};
    EXPECT_TRUE(scheduler->decide(3000, ready, true).empty());
    EXPECT_GT(scheduler->decide_again_us(), 3000u);
    const uint64_t patience_us = 64 * kConfig.deadline_us + 100'000;
    EXPECT_EQ(scheduler->decide(1000 + patience_us + 1, ready, true).size(), 2u);
    EXPECT_EQ(scheduler->errors().num_overruled, 1u);
}

// Goal: a descriptor is not left for ever by a library that takes newer ones of its session, as it
// may with two micro-batches in flight.
TEST(Plugin, OneThatAlwaysTakesTheNewestIsOverruled) {
    const auto scheduler = scheduler_of(AFD_NEWEST_PLUGIN);
    const std::vector<ReadyDescriptor> ready = {
        descriptor(0, 0, 1000), descriptor(1, 0, 2000), descriptor(0, 1, 3000)};
    const auto chosen = scheduler->decide(4000, ready, true);
    ASSERT_EQ(chosen.size(), 2u);
    EXPECT_EQ(chosen[0].session, 1u);
    EXPECT_EQ(chosen[1].micro_batch, 1u) << "within its patience the library decides";
    EXPECT_EQ(scheduler->errors().num_overruled, 0u);
    const uint64_t patience_us = 64 * kConfig.deadline_us + 100'000;
    const auto taken = scheduler->decide(1000 + patience_us + 1, ready, true);
    ASSERT_EQ(taken.size(), 2u);
    EXPECT_EQ(taken[0].session, 0u);
    EXPECT_EQ(taken[0].micro_batch, 0u);
    EXPECT_EQ(taken[1].session, 1u);
    EXPECT_EQ(scheduler->errors().num_overruled, 1u);
    EXPECT_EQ(scheduler->errors().num_bad_choices, 0u);
}

TEST(Plugin, RefusalsSayWhatIsMissing) {
    const auto absent = PluginLibrary::open("/nowhere/absent.so");
    ASSERT_FALSE(absent.ok());
    EXPECT_THAT(absent.error().message, HasSubstr("cannot load the plugin '/nowhere/absent.so'"));
    const auto foreign = PluginLibrary::open(AFD_FOREIGN_LIBRARY);
    ASSERT_FALSE(foreign.ok());
    EXPECT_THAT(foreign.error().message, HasSubstr("exports no function afd_plugin"));
    const auto old = PluginLibrary::open(AFD_OLD_PLUGIN);
    ASSERT_FALSE(old.ok());
    EXPECT_THAT(old.error().message, HasSubstr("was built for 0: this is version 1"));
    const auto small = PluginLibrary::open(AFD_SHORT_PLUGIN);
    ASSERT_FALSE(small.ok());
    EXPECT_THAT(small.error().message,
                HasSubstr("its table has 8 bytes, " + std::to_string(sizeof(AfdPlugin)) +
                          " are needed; set AfdPlugin.size"));
    const auto nameless = PluginLibrary::open(AFD_NAMELESS_PLUGIN);
    ASSERT_FALSE(nameless.ok());
    EXPECT_THAT(nameless.error().message, HasSubstr("has no name; set AfdPlugin.name"));
    const auto painter = PluginLibrary::open(AFD_PAINTER_PLUGIN);
    ASSERT_FALSE(painter.ok());
    EXPECT_THAT(painter.error().message,
                HasSubstr("AfdPlugin.name must be at most 64 printable characters of ASCII"));
    const auto half = PluginLibrary::open(AFD_HALF_PLUGIN);
    ASSERT_TRUE(half.ok());
    EXPECT_THAT(half.value().require_scheduler().error().message,
                HasSubstr("has no scheduler_destroy, scheduler_decide, which ffn_scheduler needs"));
    const auto rogue = PluginLibrary::open(AFD_ROGUE_PLUGIN);
    ASSERT_TRUE(rogue.ok());
    EXPECT_THAT(rogue.value().require_placement().error().message,
                HasSubstr("has no place_expert, which expert_placement needs"));
    EXPECT_THAT(rogue.value().require_replica_choice().error().message,
                HasSubstr("has no choose_replica, which replica_choice needs"));
    AfdSchedulerConfig one = kConfig;
    one.num_sessions = 1;
    EXPECT_THAT(PluginScheduler::create(rogue.value(), one).error().message,
                HasSubstr("cannot make a scheduler for 1 sessions"));
}

TEST(Plugin, OptionsThatNameALibrary) {
    EXPECT_TRUE(names_plugin("/opt/turns.so"));
    EXPECT_TRUE(names_plugin("./turns.so"));
    EXPECT_FALSE(names_plugin("gather"));
    EXPECT_FALSE(names_plugin("turns.so"));
}

}  // namespace
}  // namespace afd::schedule
