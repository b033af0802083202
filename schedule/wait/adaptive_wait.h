// SPDX-License-Identifier: Apache-2.0
#pragma once

// AdaptiveWait: waits for a condition over shared words: spins for a bounded time, then arms the
// doorbell, looks again and sleeps (R9). Every wait ends at its deadline.
//
// With more data threads than cores spinning steals the peer's time: then it gives its core away
// between two looks. That takes a microsecond or two where another thread wants the core; a sleep
// and a wake-up take twenty and more.

#include <sched.h>

#include <cstdint>

#include "proto/cpu_relax.h"
#include "schedule/wait/doorbell.h"
#include "schedule/wait/flag.h"

namespace afd::schedule {

// Microseconds of the monotonic clock.
uint64_t steady_now_us();
uint64_t steady_now_ns();

class AdaptiveWait {
  public:
    // spin_us 0: sleep at once. `yields`: give the core away between looks.
    AdaptiveWait(Doorbell doorbell, uint32_t spin_us, bool yields)
        : doorbell_(doorbell), spin_us_(spin_us), yields_(yields) {}

    // Waits until `condition(order)` holds or `deadline_us` (steady) has passed; returns whether it
    // holds. The condition must read every shared word that can make it true with that order; it
    // is called with kAcquire while spinning and with kSeqCst between arming and sleeping.
    // `peer_progresses` false: the peer shows no progress, so do not spin.
    template <typename Condition>
    bool until(uint64_t deadline_us, bool peer_progresses, Condition&& condition) {
        // Of what came meanwhile all is seen at the first look, not only what somebody else stored.
        doorbell_.take_arrivals();
        if (condition(Order::kAcquire)) return true;
        if (peer_progresses && spin(deadline_us, condition)) return true;
        for (;;) {
            doorbell_.arm();
            const bool holds = condition(Order::kSeqCst);
            const uint64_t now_us = steady_now_us();
            if (!holds && now_us < deadline_us) {
                ++num_sleeps_;
                doorbell_.wait(deadline_us - now_us);
            }
            doorbell_.disarm();
            if (holds || condition(Order::kAcquire)) return true;
            if (now_us >= deadline_us) return false;
        }
    }

    Doorbell& doorbell() { return doorbell_; }
    // How often it slept so far.
    uint64_t num_sleeps() const { return num_sleeps_; }

  private:
    template <typename Condition>
    bool spin(uint64_t deadline_us, Condition& condition) {
        const uint64_t start_us = steady_now_us();
        while (true) {
            const uint64_t now_us = steady_now_us();
            if (now_us - start_us >= spin_us_ || now_us >= deadline_us) return false;
            yields_ ? static_cast<void>(sched_yield()) : cpu_relax();
            doorbell_.take_arrivals();
            if (condition(Order::kAcquire)) return true;
        }
    }

    Doorbell doorbell_;
    uint32_t spin_us_;
    bool yields_;
    uint64_t num_sleeps_ = 0;
};

}  // namespace afd::schedule
