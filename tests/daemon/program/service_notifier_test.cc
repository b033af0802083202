// SPDX-License-Identifier: Apache-2.0
#include "daemon/program/service_notifier.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include "tests/notify_socket.h"

namespace afd::daemon {
namespace {

using std::chrono::seconds;

ServiceNotifier notifier_of(const std::string& socket,
                            const std::string& watchdog_us,
                            const std::string& watchdog_pid) {
    ::setenv("NOTIFY_SOCKET", socket.c_str(), 1);
    ::setenv("WATCHDOG_USEC", watchdog_us.c_str(), 1);
    ::setenv("WATCHDOG_PID", watchdog_pid.c_str(), 1);
    ServiceNotifier notifier = ServiceNotifier::from_environment();
    for (const char* name : {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"}) {
        EXPECT_EQ(::getenv(name), nullptr) << name << " goes on to the workers";
    }
    return notifier;
}

TEST(ServiceNotifier, TellsTheSocketInItsEnvironment) {
    test::NotifySocket manager;
    const std::string own_pid = std::to_string(::getpid());
    const ServiceNotifier notifier = notifier_of(manager.path(), "2000000", own_pid);
    EXPECT_TRUE(notifier.is_on());
    EXPECT_EQ(notifier.watchdog_us(), 2'000'000u);
    notifier.send("READY=1\nSTATUS=serving");
    EXPECT_EQ(manager.next(seconds(10)), "READY=1\nSTATUS=serving");
}

// The watchdog of another process of the service is not ours to feed.
TEST(ServiceNotifier, TakesOnlyItsOwnWatchdog) {
    test::NotifySocket manager;
    EXPECT_EQ(notifier_of(manager.path(), "2000000", "1").watchdog_us(), 0u);
    EXPECT_EQ(notifier_of(manager.path(), "2000000", "").watchdog_us(), 2'000'000u);
    EXPECT_EQ(notifier_of(manager.path(), "soon", "").watchdog_us(), 0u);
}

TEST(ServiceNotifier, WithoutAManagerNothingHappens) {
    for (const std::string& path :
         {std::string(), std::string("no/path"), std::string(200, '/'), std::string("/no/one")}) {
        const ServiceNotifier notifier = notifier_of(path, "1000", "");
        notifier.send("READY=1");
        EXPECT_EQ(notifier.is_on(), path == "/no/one");
    }
}

}  // namespace
}  // namespace afd::daemon
