// SPDX-License-Identifier: Apache-2.0
#pragma once

// Watchdog: aborts the test program with a message if a test body has not ended in time, so that a
// deadlock is a failure with a core of its threads and not a test that hangs.

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>

namespace afd::schedule {

class Watchdog {
  public:
    explicit Watchdog(int seconds)
        : thread_([this, seconds] {
              std::unique_lock<std::mutex> lock(mutex_);
              if (ended_.wait_for(lock, std::chrono::seconds(seconds), [this] { return end_; })) {
                  return;
              }
              std::fprintf(stderr, "watchdog: the test did not end within %d s\n", seconds);
              std::abort();
          }) {}
    Watchdog(const Watchdog&) = delete;
    Watchdog& operator=(const Watchdog&) = delete;
    ~Watchdog() {
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            end_ = true;
        }
        ended_.notify_all();
        thread_.join();
    }

  private:
    std::mutex mutex_;
    std::condition_variable ended_;
    bool end_ = false;
    std::thread thread_;
};

}  // namespace afd::schedule
