// SPDX-License-Identifier: Apache-2.0
#pragma once

// SteadyLoad: requests that are in flight at every moment while a test disturbs an instance, each
// compared with its undisturbed reply to the last bit.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/integration/instance.h"
#include "tests/integration/workload.h"

namespace afd::test {

class SteadyLoad {
  public:
    // Asks for the requests again and again on `num_clients` connections, one at a time on each.
    // REQUIRES: `instance` outlives it, and has answered the requests with `expected` before.
    SteadyLoad(const Instance& instance,
               std::vector<client::Generate> requests,
               std::vector<Reply> expected,
               size_t num_clients = 6);
    ~SteadyLoad();

    // Waits until `count` more replies have come. Fails the test otherwise: at once, with the first
    // problem, where a client has had one; after `patience`, with what the instance is doing.
    void wait_for_replies(uint64_t count, std::chrono::milliseconds patience = kPatience) const;
    // Lets what is in flight come to its end. Fails the test where a reply was another than the
    // undisturbed one, or none. Returns how many there were.
    uint64_t finish();

  private:
    // Of one client, which ends at its first problem.
    void run(size_t index);
    std::vector<std::string> problems() const;

    const Instance& instance_;
    const std::vector<client::Generate> requests_;
    const std::vector<Reply> expected_;
    std::atomic<bool> is_ending_ = false;
    std::atomic<uint64_t> num_replies_ = 0;
    mutable std::mutex mutex_;
    std::vector<std::string> problems_;  // Under the mutex.
    std::vector<std::thread> threads_;
};

}  // namespace afd::test
