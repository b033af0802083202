// SPDX-License-Identifier: Apache-2.0
#pragma once

// ThreadParallel: an ops::Parallel that makes its threads anew for every run(), for tasks of
// milliseconds.

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "ops/tensor/parallel.h"

namespace afd {

class ThreadParallel final : public ops::Parallel {
  public:
    explicit ThreadParallel(unsigned num_threads) : num_threads_(std::max(1U, num_threads)) {}

    unsigned num_threads() const override { return num_threads_; }

    void run(size_t num_tasks, ops::FunctionRef<void(size_t, unsigned)> body) override {
        std::atomic<size_t> next{0};
        const auto work = [&](unsigned thread) {
            // The counter hands out numbers only; joining the threads publishes the results.
            for (size_t task = next.fetch_add(1, std::memory_order_relaxed); task < num_tasks;
                 task = next.fetch_add(1, std::memory_order_relaxed)) {
                body(task, thread);
            }
        };
        std::vector<std::jthread> threads;
        for (unsigned thread = 1; thread < std::min<size_t>(num_threads_, num_tasks); ++thread) {
            threads.emplace_back(work, thread);
        }
        work(0);
    }

  private:
    unsigned num_threads_;
};

}  // namespace afd
