// SPDX-License-Identifier: Apache-2.0
#include "schedule/wait/doorbell.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>

namespace afd::schedule {

Doorbell::Doorbell(int32_t* armed, int eventfd, Arrivals* arrivals)
    : armed_(armed), eventfd_(eventfd), arrivals_(arrivals) {}

void Doorbell::arm() {
    publish_seq_cst(*armed_, 1);
}

// Release is enough: a publisher that still sees the word armed writes to the eventfd once too
// often, and the next wait() returns early.
void Doorbell::disarm() {
    publish_release(*armed_, 0);
}

bool Doorbell::wait(uint64_t timeout_us) {
    // An hour. Callers pass "never" as the largest number, which would overflow a timespec; whoever
    // wakes without a ring looks again anyway.
    constexpr uint64_t kTimeoutMaxUs = uint64_t{1000} * 1000 * 3600;
    const uint64_t bounded_us = std::min(timeout_us, kTimeoutMaxUs);
    if (arrivals_ != nullptr) {
        arrivals_->sleep(eventfd_, bounded_us);
        // Awake, it is not rung for what it takes itself.
        disarm();
        arrivals_->take();
    } else {
        pollfd event{eventfd_, POLLIN, 0};
        const timespec timeout = timespec_of(bounded_us);
        if (::ppoll(&event, 1, &timeout, nullptr) <= 0) return false;
    }
    // Takes all rings at once. One that comes after this read wakes the next wait(), which is early
    // but never lost.
    uint64_t rings = 0;
    return ::read(eventfd_, &rings, sizeof(rings)) == sizeof(rings);
}

timespec timespec_of(uint64_t us) {
    timespec time{};
    time.tv_sec = static_cast<time_t>(us / 1'000'000);
    time.tv_nsec = static_cast<long>(us % 1'000'000) * 1000;
    return time;
}

void ring(int eventfd) {
    const uint64_t one = 1;
    // EAGAIN means that the counter is full, which is a ring that nobody has taken yet.
    while (::write(eventfd, &one, sizeof(one)) < 0 && errno == EINTR) {
    }
}

DoorbellRinger::DoorbellRinger(const int32_t* armed, int eventfd)
    : armed_(armed), eventfd_(eventfd) {}

bool DoorbellRinger::ring_if_armed() const {
    if (observe(*armed_, Order::kSeqCst) == 0) return false;
    ring();
    return true;
}

}  // namespace afd::schedule
