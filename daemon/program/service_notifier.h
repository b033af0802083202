// SPDX-License-Identifier: Apache-2.0
#pragma once

// ServiceNotifier: tells the service manager how this process is (sd_notify(3)): datagrams of
// "KEY=value" lines to the Unix socket that NOTIFY_SOCKET names. Its own few lines instead of
// libsystemd: the protocol is that small and promised to stay.
//
// Without NOTIFY_SOCKET nothing happens. A manager that does not listen costs nothing either: a
// message that cannot be sent is dropped.

#include <cstdint>
#include <string>
#include <vector>

namespace afd::daemon {

class ServiceNotifier {
  public:
    // Reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID and takes them out of the environment:
    // they are not for the processes that this one starts. REQUIRES: no other thread runs.
    static ServiceNotifier from_environment();

    ServiceNotifier() = default;

    // `lines`: "READY=1", or several with newlines between them.
    void send(const std::string& lines) const;

    // The variables that from_environment() takes, "KEY=value", for a process that is to take the
    // place of this one.
    std::vector<std::string> environment() const;

    bool is_on() const { return !path_.empty(); }
    // The manager kills this process if it does not hear WATCHDOG=1 for this long; 0: it never
    // does.
    uint64_t watchdog_us() const { return watchdog_us_; }

  private:
    std::string path_;  // '@' first: an abstract name.
    uint64_t watchdog_us_ = 0;
};

}  // namespace afd::daemon
