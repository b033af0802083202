// SPDX-License-Identifier: Apache-2.0
#pragma once

// TakerWatch: who takes in what arrives at a UcxWorker: its own thread, or the data thread, which
// spins, or sleeps where arrivals wake it. Then the worker's own thread rests: woken by each
// message it would take a core from whoever is there for it, or be one more wake-up on the way. A
// data thread that only computes says nothing, and is found to be away when a rest is over.

#include <atomic>
#include <cstdint>
#include <utility>

namespace afd::schedule {

enum class Taker { kOwnThread, kSpinner, kSleeper };

class TakerWatch {
  public:
    // The data thread's:
    void on_take() {
        // Relaxed: it only says that somebody was here.
        num_takes_.fetch_add(1, std::memory_order_relaxed);
    }
    void begin_sleep() {
        // Relaxed: whoever finds it late rests later, or looks once too often.
        sleeps_.store(true, std::memory_order_relaxed);
    }
    void end_sleep() {
        on_take();
        // Relaxed: as above.
        sleeps_.store(false, std::memory_order_relaxed);
    }

    // The own thread's:
    // Who is it now. A spinner: it has taken since this was asked last.
    Taker look() {
        // Relaxed: see on_take().
        const uint64_t num_takes = num_takes_.load(std::memory_order_relaxed);
        const bool is_same = std::exchange(num_takes_seen_, num_takes) == num_takes;
        num_quiet_ = is_same ? num_quiet_ + 1 : 0;
        if (sleeps()) return Taker::kSleeper;
        return is_same ? Taker::kOwnThread : Taker::kSpinner;
    }
    bool sleeps() const {
        // Relaxed: see begin_sleep().
        return sleeps_.load(std::memory_order_relaxed);
    }
    // How often nothing had been taken, in a row: many of a worker that nobody asks for anything.
    uint64_t num_quiet() const { return num_quiet_; }

  private:
    std::atomic<uint64_t> num_takes_{0};
    std::atomic<bool> sleeps_{false};
    uint64_t num_takes_seen_ = 0;  // The own thread's, both.
    uint64_t num_quiet_ = 0;
};

}  // namespace afd::schedule
