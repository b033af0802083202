// SPDX-License-Identifier: Apache-2.0
#pragma once

// ThreadPool: the threads with which one worker computes; ops::Parallel for its operators.
//
// Thread 0 is the data thread itself: it calls run() and takes part. The helpers spin for
// `spin_us` after a run and then sleep, so that an idle worker uses no CPU. With `yields` (more
// threads than cores) a waiting thread spins for a moment only and then gives its core away between
// two looks. Which thread runs a task never changes its result.
//
// Ordering: a task is claimed by a compare-exchange on claim_ = (epoch, next task). run() opens an
// epoch with a store that releases body_ and num_tasks_; a claim acquires them. Each finished task
// is released by completed_ and acquired by run() before it returns. Between runs claim_ is closed
// (next task = kClosed), so a helper that comes late cannot claim from a run that is over. A helper
// counts itself in num_sleeping_ before its last look at claim_, and run() stores claim_ before it
// reads num_sleeping_, all four sequentially consistent: either the helper sees the epoch, or run()
// sees the helper and wakes it.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "ops/tensor/parallel.h"
#include "proto/status.h"

namespace afd::threads {

class ThreadPool final : public ops::Parallel {
  public:
    // `cpus`: core of thread i is cpus[i % cpus.size()]; empty: not pinned. Pins the caller too.
    // Throws std::system_error where the kernel refuses a thread; those that were made have ended.
    // REQUIRES: num_threads >= 1.
    ThreadPool(unsigned num_threads, uint32_t spin_us, bool yields, std::span<const uint32_t> cpus);
    // For tasks of milliseconds, on cores that others want too: helpers sleep between two runs and
    // whoever waits gives way. REQUIRES: num_threads >= 1.
    explicit ThreadPool(unsigned num_threads) : ThreadPool(num_threads, 0, true, {}) {}
    ~ThreadPool() override;

    // Whether every thread has its core; else why the first does not. Such a pool works all the
    // same, only slower.
    const Result<>& pinned() const { return pinned_; }

    unsigned num_threads() const override { return static_cast<unsigned>(helpers_.size()) + 1; }
    // REQUIRES: one caller at a time; num_tasks < 2^32 - 1.
    void run(size_t num_tasks, ops::FunctionRef<void(size_t task, unsigned thread)> body) override;

  private:
    using Body = ops::FunctionRef<void(size_t, unsigned)>;

    // Ends the helpers.
    void stop();
    void help(unsigned thread);
    void work(uint32_t epoch, unsigned thread);
    // Waits for an epoch other than `seen`; returns it.
    uint32_t await_epoch(uint32_t seen);

    const uint32_t spin_us_;
    const bool yields_;
    alignas(128) std::atomic<uint64_t> claim_;
    alignas(128) std::atomic<uint32_t> completed_{0};
    alignas(128) std::atomic<const Body*> body_{nullptr};
    std::atomic<uint32_t> num_tasks_{0};
    std::atomic<uint32_t> num_sleeping_{0};
    std::atomic<bool> is_stopping_{false};
    std::mutex mutex_;
    std::condition_variable wake_;
    std::vector<std::thread> helpers_;
    Result<> pinned_;
};

// Lets the calling thread run on these cores alone.
// Errors: kFailedPrecondition: the kernel refuses it, naming the first core and the reason;
// kResourceExhausted: no memory for the set. REQUIRES: there are some.
Result<> pin_this_thread(std::span<const uint32_t> cpus);

}  // namespace afd::threads
