// SPDX-License-Identifier: Apache-2.0
#include "daemon/instance/service_life.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/daemon/loop_helper.h"
#include "tests/notify_socket.h"

namespace afd::daemon {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class ServiceLifeTest : public ::testing::Test {
  protected:
    ServiceLifeTest() {
        ::setenv("NOTIFY_SOCKET", manager_.path().c_str(), 1);
        ::setenv("WATCHDOG_USEC", "20000", 1);
        ::unsetenv("WATCHDOG_PID");
        notifier_ = ServiceNotifier::from_environment();
    }

    // What was said since the last call; empty: nothing.
    std::string said() { return manager_.next(std::chrono::milliseconds(0)); }

    test::NotifySocket manager_;
    EventLoop loop_;
    ServiceNotifier notifier_;
};

TEST_F(ServiceLifeTest, AReloadIsToldOfAServiceThatServes) {
    ServiceLife life(loop_, notifier_, true);
    life.begin_reload();
    life.end_reload();
    EXPECT_EQ(said(), "") << "nobody is ready yet";
    life.say_ready("serving x");
    EXPECT_EQ(said(), "READY=1\nSTATUS=serving x");
    life.begin_reload();
    EXPECT_THAT(said(), StartsWith("RELOADING=1\nMONOTONIC_USEC="));
    life.end_reload();
    EXPECT_EQ(said(), "READY=1");
    life.say_stopping("draining 1 requests", 5);
    EXPECT_EQ(said(), "STOPPING=1\nSTATUS=draining 1 requests\nEXTEND_TIMEOUT_USEC=5000");
    life.begin_reload();
    life.end_reload();
    life.say_ready("again");
    EXPECT_EQ(said(), "") << "it stays in its drain";
}

TEST_F(ServiceLifeTest, OnlyTheMainProcessSpeaks) {
    ServiceLife old_one(loop_, notifier_, true);
    ServiceLife new_one(loop_, notifier_, false);
    new_one.begin();
    run_for(loop_, 50, [] { return false; });
    new_one.say_stopping("it cannot start", 0);
    EXPECT_EQ(said(), "") << "the old one serves";
    old_one.give_to(1234);
    EXPECT_EQ(said(), "MAINPID=1234\nSTATUS=pid 1234 takes over");
    old_one.begin();
    old_one.say_status("3 requests");
    run_for(loop_, 50, [] { return false; });
    EXPECT_EQ(said(), "");
    old_one.take_back();
    EXPECT_EQ(said(), fmt::format("MAINPID={}", ::getpid()));
    EXPECT_TRUE(run_until(loop_, [&] { return said() == "WATCHDOG=1"; }));
}

TEST_F(ServiceLifeTest, WhoHasTakenOverSpeaks) {
    ServiceLife life(loop_, notifier_, false);
    life.begin();
    life.take_over();
    life.say_ready("serving");
    EXPECT_THAT(said(), HasSubstr("READY=1"));
    EXPECT_TRUE(run_until(loop_, [&] { return said() == "WATCHDOG=1"; }));
}

}  // namespace
}  // namespace afd::daemon
