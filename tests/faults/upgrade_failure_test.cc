// SPDX-License-Identifier: Apache-2.0
//
// Upgrades that cannot be, and processes that die in the middle of one.

#include <signal.h>
#include <sys/wait.h>

#include <chrono>
#include <thread>

#include "tests/faults/steady_load.h"
#include "tests/faults/upgrade_fixture.h"
#include "tests/integration/background_generation.h"

namespace afd::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

class UpgradeThatFails : public Upgrade {
  protected:
    // Soon given up; a worker may stand still.
    UpgradeThatFails()
        : Upgrade({"--start-timeout-ms",
                   "20000",
                   "--start-attempts",
                   "2",
                   "--stop-timeout-ms",
                   "0",
                   "--hang-timeout-ms",
                   "0"}) {}

    // One that was put in the place of the file and has not been ready.
    pid_t starting_pid() const {
        wait_for_upgrade_text("starts to take the place of this one");
        const std::string text = instance_.status().upgrade();
        return static_cast<pid_t>(std::stoi(text.substr(std::string("pid ").size())));
    }
    // Of an orphan the end is this process's to see.
    static void expect_gone(pid_t pid) {
        const auto deadline = std::chrono::steady_clock::now() + kPatience;
        while (kill(pid, 0) == 0 && std::chrono::steady_clock::now() < deadline) {
            waitpid(pid, nullptr, WNOHANG);
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
        }
        EXPECT_NE(kill(pid, 0), 0) << "it is there";
    }
    void expect_serves_on() const {
        EXPECT_EQ(serving_pid(), instance_.pid());
        EXPECT_EQ(instance_.status().upgrade(), "");
        EXPECT_EQ(instance_.status().state(), "ready");
        expect_undisturbed_replies();
    }
};

// Goal: whatever is wrong with the new one is said, and costs nothing. Oracle: the words, and the
// load, which goes on.
TEST_F(UpgradeThatFails, WhatIsWrongIsSaidAndTheOldOneServesOn) {
    SteadyLoad load(instance_, requests_, expected_);
    load.wait_for_replies(3);
    const struct {
        std::string hook;
        std::string message;
    } wrong[] = {
        {"exit 9", "it ended (exited with status 9); the log may have the reason"},
        {"kill -KILL $$", "it ended (killed by signal 9 (Killed))"},
        {"sleep 60", "it has given no sign of life for start_timeout_ms = 20000"},
        {"set -- \"${@/demo_model/nowhere}\"", "/nowhere"},
        {"set -- \"$1\" other \"${@:3}\"", "an upgrade keeps the name"},
        {"export AFD_WORKER_DIRECTORY=/nowhere", "cannot start '/nowhere/afd-"},
        {"echo 'ffn_wrokers = 2' >\"$0.toml\"; chmod go-w \"$0.toml\"; set -- \"$@\" --config "
         "\"$0.toml\"",
         "afdd.toml:1:1: unknown key 'ffn_wrokers' (did you mean 'ffn_workers'?)"},
        {"set -- \"$@\" --ucx-host foo", "ucx_host = 'foo': must be an address of this host"},
        {"export AFD_SPAWN=false", "spawn = false: an upgrade starts its workers itself"},
#ifdef AFD_HAS_UCX
        {"set -- \"$@\" --transport ucx --cluster-dir /nowhere --cluster-listen 127.0.0.1:0 "
         "--ffn-hosts b",
         "attention_hosts, ffn_hosts: an upgrade can only be to workers of this host yet"},
        {"set -- \"$@\" --transport ucx --cluster-dir /nowhere --join 127.0.0.1:1",
         "join: an upgrade can only be to workers of this host yet"},
#endif
        {"set -- \"$@\" --no-such-flag",
         "it ended (exited with status 2); the log may have the reason"},
    };
    for (const auto& [hook, message] : wrong) {
        installed_.hook.set(hook);
        const Outcome outcome = upgrade();
        EXPECT_EQ(outcome.exit_status, 1) << hook;
        EXPECT_THAT(outcome.output, HasSubstr("the new afdd cannot serve: "));
        EXPECT_THAT(outcome.output, HasSubstr(message)) << hook;
        EXPECT_THAT(outcome.output, HasSubstr("; this one serves on"));
    }
    load.wait_for_replies(3);
    EXPECT_GT(load.finish(), 0U);
    expect_serves_on();
    EXPECT_THAT(instance_.log(),
                HasSubstr("afdd[" + std::to_string(instance_.pid()) + "]: upgrade: '"));
    installed_.hook.set("");
    ASSERT_NO_FATAL_FAILURE(expect_upgraded(upgrade()));
    EXPECT_EQ(instance_.stop(), 0);
    EXPECT_THAT(instance_.segments(), IsEmpty());
}

// What is no program is not given to a shell, which would try to make sense of it.
TEST_F(UpgradeThatFails, WhatIsNoProgramIsNotStarted) {
    installed_.replace("afdd of next week\n");
    const Outcome outcome = upgrade();
    EXPECT_EQ(outcome.exit_status, 1);
    EXPECT_THAT(
        outcome.output,
        HasSubstr("cannot start '" + installed_.file + "': it is no program and no script"));
    expect_serves_on();
    EXPECT_EQ(instance_.stop(), 0);
}

TEST_F(UpgradeThatFails, OneAtATimeAndNoneBesideAResizeOrADrain) {
    installed_.hook.hold();
    auto first = upgrade_beside();
    starting_pid();
    const Outcome second = upgrade();
    EXPECT_EQ(second.exit_status, 1);
    EXPECT_THAT(second.output, HasSubstr("an upgrade is under way: pid "));
    const Outcome resize = instance_.afdctl({"resize", "--ffn", "2"});
    EXPECT_EQ(resize.exit_status, 1);
    EXPECT_THAT(resize.output, HasSubstr("an upgrade is under way: pid "));
    installed_.hook.let_go();
    ASSERT_NO_FATAL_FAILURE(expect_upgraded(first.get()));
    EXPECT_EQ(instance_.afdctl({"drain"}).exit_status, 0);
    const Outcome drained = upgrade();
    EXPECT_EQ(drained.exit_status, 1);
    EXPECT_THAT(drained.output, HasSubstr("afdd is draining, which cannot be taken back"));
    EXPECT_EQ(instance_.stop(), 0);
}

TEST_F(UpgradeThatFails, ATermBeforeTheNewOneServesEndsBoth) {
    installed_.hook.hold();
    auto upgrade = upgrade_beside();
    const pid_t pid = starting_pid();
    instance_.signal(SIGTERM);
    const Outcome outcome = upgrade.get();
    EXPECT_EQ(outcome.exit_status, 1);
    EXPECT_EQ(instance_.wait_exit(), 0);
    expect_gone(pid);
    EXPECT_THAT(instance_.segments(), IsEmpty());
}

// The old one has a request that stands still. What its client has asked for meanwhile is served.
TEST_F(UpgradeThatFails, TheDeathOfTheNewOneGivesTheClientsBackToTheOldOne) {
    begin_and_halt();
    const pid_t old_pid = instance_.pid();
    ASSERT_EQ(upgrade().exit_status, 0);
    const pid_t new_pid = serving_pid();
    ASSERT_NE(new_pid, old_pid);
    send_signal(new_pid, SIGKILL);
    instance_.wait_for("the old one serves again", [&](const client::Status& status) {
        return static_cast<pid_t>(status.pid()) == old_pid;
    });
    go_on();
    const auto found = held_->finish();
    ASSERT_TRUE(found.ok()) << found.error().message;
    EXPECT_EQ(found.value().token_ids.size(), kTokens);
    expect_serves_on();
    EXPECT_THAT(instance_.log(), HasSubstr("the new afdd is gone: it ended (killed by signal 9"));
    // Again, and to its end.
    ASSERT_NO_FATAL_FAILURE(expect_upgraded(upgrade()));
    EXPECT_EQ(instance_.stop(), 0);
}

TEST_F(UpgradeThatFails, TheDeathOfTheOldOneCostsItsRequestsAndNoOther) {
    begin_and_halt();
    ASSERT_EQ(upgrade().exit_status, 0);
    const pid_t new_pid = serving_pid();
    SteadyLoad load(instance_, requests_, expected_);
    load.wait_for_replies(3);
    instance_.signal(SIGKILL);
    go_on();
    EXPECT_FALSE(held_->finish().ok());
    EXPECT_EQ(instance_.wait_exit(), 128 + SIGKILL);
    instance_.follow(new_pid);
    instance_.wait_for("that is seen",
                       [](const client::Status& status) { return status.upgrade().empty(); });
    load.wait_for_replies(6);
    EXPECT_GT(load.finish(), 0U);
    EXPECT_EQ(instance_.stop(), 0);
}

// A new one that was on its way serves what is left of the place: lock, sockets and name.
TEST_F(UpgradeThatFails, TheDeathOfTheOldOneBeforeTheNewOneServesLeavesThePlaceToIt) {
    installed_.hook.hold();
    auto upgrade = upgrade_beside();
    const pid_t new_pid = starting_pid();
    instance_.signal(SIGKILL);
    installed_.hook.let_go();
    EXPECT_NE(upgrade.get().exit_status, 0);
    EXPECT_EQ(instance_.wait_exit(), 128 + SIGKILL);
    instance_.follow(new_pid);
    instance_.wait_ready();
    EXPECT_EQ(serving_pid(), new_pid);
    expect_undisturbed_replies();
    EXPECT_EQ(instance_.stop(), 0);
}

TEST_F(UpgradeThatFails, ATermOfTheNewOneWaitsForTheOldOne) {
    begin_and_halt();
    ASSERT_EQ(upgrade().exit_status, 0);
    const pid_t new_pid = serving_pid();
    send_signal(new_pid, SIGTERM);
    instance_.wait_for("it drains",
                       [](const client::Status& status) { return status.state() == "draining"; });
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    EXPECT_EQ(kill(new_pid, 0), 0) << "a request runs with the old one";
    go_on();
    const auto found = held_->finish();
    ASSERT_TRUE(found.ok()) << found.error().message;
    EXPECT_EQ(instance_.wait_exit(), 0);
    instance_.follow(new_pid);
    EXPECT_EQ(instance_.wait_exit(), 0);
    EXPECT_THAT(instance_.segments(), IsEmpty());
}

}  // namespace
}  // namespace afd::test
