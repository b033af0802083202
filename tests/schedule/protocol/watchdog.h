// SPDX-License-Identifier: Apache-2.0
#pragma once

// Watchdog: aborts the test program with a message if a test body has not ended in time, so that a
// deadlock is a failure with a core of its threads and not a test that hangs.

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <thread>

namespace afd::schedule {

class Watchdog {
  public:
    explicit Watchdog(int seconds)
        : thread_([ended = end_.get_future(), seconds] {
              if (ended.wait_for(std::chrono::seconds(seconds)) == std::future_status::ready) {
                  return;
              }
              std::fprintf(stderr, "watchdog: the test did not end within %d s\n", seconds);
              std::abort();
          }) {}
    Watchdog(const Watchdog&) = delete;
    Watchdog& operator=(const Watchdog&) = delete;
    ~Watchdog() {
        end_.set_value();
        thread_.join();
    }

  private:
    std::promise<void> end_;
    std::thread thread_;
};

}  // namespace afd::schedule
