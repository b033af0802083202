// SPDX-License-Identifier: Apache-2.0
#pragma once

// TakerWatch: whether the data thread takes in by itself what arrives at a UcxWorker. While it does
// the worker's own thread rests: woken by each message it would take a core from who is there for
// it. The data thread hands over before it sleeps, and that wakes a thread at rest; one that only
// computes says nothing, and is found to be away when the rest is over.

#include <atomic>
#include <cstdint>
#include <utility>

namespace afd::schedule {

class TakerWatch {
  public:
    // The data thread's:
    void on_take() {
        // Relaxed: it only says that somebody was here.
        num_takes_.fetch_add(1, std::memory_order_relaxed);
    }
    // It takes nothing more for a while. Returns whether the own thread rests, and must be woken.
    bool hand_over() {
        // Relaxed: the same thread made it.
        const uint64_t num_takes = num_takes_.load(std::memory_order_relaxed);
        // Seq_cst, both; partner: begin_rest(). Either this finds the thread at rest, or that one
        // finds this.
        num_takes_at_end_.store(num_takes, std::memory_order_seq_cst);
        return rests_.load(std::memory_order_seq_cst);
    }

    // The own thread's:
    // Whether there were takes since this was asked last, and no end of them.
    bool has_taker() {
        // Relaxed: see on_take().
        const uint64_t num_takes = num_takes_.load(std::memory_order_relaxed);
        return std::exchange(num_takes_seen_, num_takes) != num_takes && !is_handed_over();
    }
    // Returns whether it may rest; end_rest() follows in any case.
    bool begin_rest() {
        // Seq_cst; partner: hand_over().
        rests_.store(true, std::memory_order_seq_cst);
        return !is_handed_over();
    }
    void end_rest() {
        // Relaxed: who finds it at rest wakes it once too often.
        rests_.store(false, std::memory_order_relaxed);
    }

  private:
    bool is_handed_over() const {
        // Seq_cst: see begin_rest(). Relaxed: who has taken more since then is not asleep.
        return num_takes_at_end_.load(std::memory_order_seq_cst) ==
               num_takes_.load(std::memory_order_relaxed);
    }

    std::atomic<uint64_t> num_takes_{0};
    std::atomic<uint64_t> num_takes_at_end_{0};  // How many there were at the last hand_over().
    std::atomic<bool> rests_{false};
    uint64_t num_takes_seen_ = 0;  // The own thread's.
};

}  // namespace afd::schedule
