// SPDX-License-Identifier: Apache-2.0
#include "threads/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "proto/check.h"
#include "proto/cpu_relax.h"
#include "proto/failure.h"

namespace afd::threads {
namespace {

constexpr uint32_t kClosed = UINT32_MAX;
// Looks between two looks at the clock; about 2 us of pauses.
constexpr int kLooksPerClock = 64;
// With as many threads as cores: looks before the core is offered to a thread that was scheduled
// onto it all the same.
constexpr int kLooksPerYield = 4096;

constexpr uint64_t claim_word(uint32_t epoch, uint32_t next) {
    return uint64_t{epoch} << 32 | next;
}
constexpr uint32_t epoch_of(uint64_t claim) {
    return static_cast<uint32_t>(claim >> 32);
}
constexpr uint32_t next_of(uint64_t claim) {
    return static_cast<uint32_t>(claim);
}

Result<> pin(pthread_t thread, std::span<const uint32_t> cpus) {
    // A cpu_set_t holds 1024 cores only; machines have more, and the configuration names them.
    const uint32_t last = *std::ranges::max_element(cpus);
    cpu_set_t* set = CPU_ALLOC(last + 1);
    if (set == nullptr) {
        return resource_exhausted("no memory for a set of {} cores", with(last + 1));
    }
    const size_t bytes = CPU_ALLOC_SIZE(last + 1);
    CPU_ZERO_S(bytes, set);
    for (const uint32_t cpu : cpus) CPU_SET_S(cpu, bytes, set);
    const int error = pthread_setaffinity_np(thread, bytes, set);
    CPU_FREE(set);
    if (error == 0) return {};
    return failed_precondition("a thread cannot be pinned to core {}: {}; it runs where it may",
                               with(cpus.front(), std::strerror(error)));
}

}  // namespace

ThreadPool::ThreadPool(unsigned num_threads,
                       uint32_t spin_us,
                       bool yields,
                       std::span<const uint32_t> cpus)
    : spin_us_(spin_us), yields_(yields), claim_(claim_word(0, kClosed)) {
    AFD_ASSERT(num_threads >= 1, "%u threads", num_threads);
    // The kernel may refuse a thread, which throws: those that run end before their members go.
    struct StopUnlessMade {
        ThreadPool* pool;
        ~StopUnlessMade() {
            if (pool != nullptr) pool->stop();
        }
    } guard{this};
    for (unsigned thread = 1; thread < num_threads; ++thread) {
        helpers_.emplace_back([this, thread] { help(thread); });
    }
    guard.pool = nullptr;
    for (unsigned thread = 0; thread < num_threads && !cpus.empty(); ++thread) {
        const Result<> pinned =
            pin(thread == 0 ? pthread_self() : helpers_[thread - 1].native_handle(),
                cpus.subspan(thread % cpus.size(), 1));
        if (pinned_.ok()) pinned_ = pinned;
    }
}

ThreadPool::~ThreadPool() {
    stop();
}

void ThreadPool::stop() {
    {
        const std::lock_guard lock(mutex_);
        // Read under the mutex, or by a spinning helper that needs nothing else.
        is_stopping_.store(true, std::memory_order_relaxed);
    }
    wake_.notify_all();
    for (std::thread& helper : helpers_) helper.join();
}

void ThreadPool::run(size_t num_tasks, Body body) {
    AFD_ASSERT(num_tasks < kClosed, "%zu tasks", num_tasks);
    if (helpers_.empty() || num_tasks <= 1) {
        for (size_t task = 0; task < num_tasks; ++task) body(task, 0);
        return;
    }
    const auto count = static_cast<uint32_t>(num_tasks);
    // Relaxed: this thread's last value; only run() stores claim_'s epoch.
    const uint32_t epoch = epoch_of(claim_.load(std::memory_order_relaxed)) + 1;
    // Relaxed: published by the store of claim_ below, whose partner is the acquire in work().
    body_.store(&body, std::memory_order_relaxed);
    num_tasks_.store(count, std::memory_order_relaxed);
    completed_.store(0, std::memory_order_relaxed);
    // Opens the epoch (pairs with the acquire in work()). Sequentially consistent with the look at
    // num_sleeping_: a helper either sees the epoch before it sleeps or is seen sleeping here.
    claim_.store(claim_word(epoch, 0), std::memory_order_seq_cst);
    if (num_sleeping_.load(std::memory_order_seq_cst) > 0) {
        { const std::lock_guard lock(mutex_); }
        wake_.notify_all();
    }

    work(epoch, 0);
    // Pairs with the release in work(): every task's writes are visible from here on.
    for (int looks = 1; completed_.load(std::memory_order_acquire) < count; ++looks) {
        // A helper that holds the last task may have lost its core to us. There is no sleep here:
        // what threads take gets smaller towards the end of a run (ops/tensor/item_shares.h and
        // task_cuts.h), so that what is left of it should be shorter than a wake-up.
        const bool gives_way = yields_ ? looks > kLooksPerClock : looks % kLooksPerYield == 0;
        gives_way ? static_cast<void>(sched_yield()) : cpu_relax();
    }
    // Closes the epoch: a late claim fails. Partner: the acquire in work(), of a helper that is
    // late.
    claim_.store(claim_word(epoch, kClosed), std::memory_order_release);
}

void ThreadPool::work(uint32_t epoch, unsigned thread) {
    // Pairs with the store that opens the epoch in run().
    uint64_t claim = claim_.load(std::memory_order_acquire);
    while (epoch_of(claim) == epoch) {
        // Ordered by the acquire of `claim`; a value of a later run fails the exchange below.
        if (next_of(claim) >= num_tasks_.load(std::memory_order_relaxed)) return;
        // Acquire pairs with run()'s opening store, also after a failure.
        if (!claim_.compare_exchange_weak(
                claim, claim + 1, std::memory_order_acq_rel, std::memory_order_acquire)) {
            continue;
        }
        // Relaxed: the claim succeeded, so run() of this epoch is waiting and body_ is its.
        (*body_.load(std::memory_order_relaxed))(next_of(claim), thread);
        // Pairs with run()'s acquire of completed_.
        completed_.fetch_add(1, std::memory_order_release);
        // Pairs with the store that opens the epoch in run().
        claim = claim_.load(std::memory_order_acquire);
    }
}

uint32_t ThreadPool::await_epoch(uint32_t seen) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::microseconds(spin_us_);
    bool gives_way = false;
    do {
        for (int look = 0; look < kLooksPerClock; ++look) {
            // Relaxed: only a hint; work() acquires.
            const uint32_t epoch = epoch_of(claim_.load(std::memory_order_relaxed));
            if (epoch != seen || is_stopping_.load(std::memory_order_relaxed)) return epoch;
            if (spin_us_ > 0) gives_way ? static_cast<void>(sched_yield()) : cpu_relax();
        }
        gives_way = yields_;
    } while (std::chrono::steady_clock::now() < deadline);

    std::unique_lock lock(mutex_);
    // Partner: run()'s store of claim_ and its look here; one of the two sees the other (seq_cst).
    num_sleeping_.fetch_add(1, std::memory_order_seq_cst);
    uint32_t epoch = seen;
    wake_.wait(lock, [&] {
        // The look after arming; seq_cst partner of run()'s opening store.
        epoch = epoch_of(claim_.load(std::memory_order_seq_cst));
        // Stored under the mutex that we hold.
        return epoch != seen || is_stopping_.load(std::memory_order_relaxed);
    });
    // Only run()'s decision to wake depends on it; late is harmless.
    num_sleeping_.fetch_sub(1, std::memory_order_relaxed);
    return epoch;
}

void ThreadPool::help(unsigned thread) {
    uint32_t seen = 0;
    // Set once; a helper that misses it here sees it under the mutex.
    while (!is_stopping_.load(std::memory_order_relaxed)) {
        seen = await_epoch(seen);
        work(seen, thread);
    }
}

Result<> pin_this_thread(std::span<const uint32_t> cpus) {
    AFD_ASSERT(!cpus.empty(), "a thread must run somewhere");
    return pin(pthread_self(), cpus);
}

}  // namespace afd::threads
