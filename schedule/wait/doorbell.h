// SPDX-License-Identifier: Apache-2.0
#pragma once

// Doorbell: how a publisher wakes a sleeping peer (R9), and costs no syscall while it is awake.
//
// An armed word in the sleeper's control segment, which only the sleeper writes, and an eventfd
// (EFD_NONBLOCK) that afdd made and handed to both sides. Neither class owns the descriptor. Over a
// transport without shared memory the publisher is whoever stores what arrives on the sleeper's
// machine.
//
//   sleeper                                 publisher
//   armed = 1                  (seq_cst)    flag = round               (seq_cst)
//   look at the flags again    (seq_cst)    armed? then write(eventfd) (seq_cst)
//   poll(eventfd); armed = 0
//
// The four accesses are totally ordered, so either the sleeper's look finds the flag or the
// publisher's finds the armed word: no wake-up is lost. A publisher can die between its flag and
// its ring; therefore a starting process, and afdd when it reaps one, ring every peer once.
// A word found armed by a successor costs publishers one needless write at most.

#include <cstdint>
#include <ctime>

#include "schedule/wait/flag.h"

namespace afd::schedule {

// What brings in what arrives, where no peer stores it by itself.
class Arrivals {
  public:
    virtual ~Arrivals() = default;
    // Brings in what is there, without waiting.
    virtual void take() = 0;
    // Sleeps until `eventfd` is rung, there may be something to take, or the time is over; earlier
    // if it must. While the data thread does neither, somebody else brings in what arrives: it does
    // not return if nobody does.
    virtual void sleep(int eventfd, uint64_t timeout_us) = 0;
};

// The sleeper's side. One thread.
class Doorbell {
  public:
    Doorbell() = default;
    // REQUIRES: `armed` outlives this, and so does `arrivals`, which may be null; `eventfd` is
    // non-blocking.
    Doorbell(int32_t* armed, int eventfd, Arrivals* arrivals = nullptr);

    // Whoever spins looks here too. Whoever sleeps is woken by arrivals, and takes them.
    void take_arrivals() {
        if (arrivals_ != nullptr) arrivals_->take();
    }
    void arm();
    void disarm();

    // Sleeps until rung, or for `timeout_us`, and takes the ring, and what has arrived. Returns
    // whether it was rung. May return early without a ring (a signal): callers look again in any
    // case.
    bool wait(uint64_t timeout_us);

    int eventfd() const { return eventfd_; }

  private:
    int32_t* armed_ = nullptr;
    int eventfd_ = -1;
    Arrivals* arrivals_ = nullptr;
};

// A time as the kernel takes it.
timespec timespec_of(uint64_t us);

// Wakes who sleeps on an eventfd, in any case. A full counter is a ring already; a closed
// descriptor means that afdd is ending.
void ring(int eventfd);

// The publisher's side. Any thread of any process.
class DoorbellRinger {
  public:
    DoorbellRinger() = default;
    DoorbellRinger(const int32_t* armed, int eventfd);

    // Wakes the sleeper if it is armed. Call after a seq_cst store of what it waits for.
    // Returns whether a write was needed.
    bool ring_if_armed() const;

    // Wakes it in any case: at the start of a process and after a death.
    void ring() const { schedule::ring(eventfd_); }

  private:
    const int32_t* armed_ = nullptr;
    int eventfd_ = -1;
};

}  // namespace afd::schedule
