// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/worker_port.h"

#include <sys/eventfd.h>

#include <cerrno>
#include <cstring>

#include "schedule/wait/doorbell.h"

namespace afd::daemon {

WorkerPort::WorkerPort(size_t event_capacity, size_t command_capacity, int doorbell_fd)
    : events_(event_capacity),
      commands_(command_capacity),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      doorbell_fd_(doorbell_fd) {
    AFD_ASSERT(wake_.valid(), "eventfd: %s", std::strerror(errno));
}

void WorkerPort::flush() {
    if (is_flushed_) return;
    is_flushed_ = true;
    // Pairs with the exchange of rest(); see "Ordering" in the header.
    if (control_sleeps_.exchange(false, std::memory_order_acq_rel)) schedule::ring(wake_.get());
}

void WorkerPort::begin_drain() {
    uint64_t count = 0;
    while (::read(wake_.get(), &count, sizeof(count)) < 0 && errno == EINTR) {
    }
    // Pairs with the exchange of flush(): while this thread drains it needs no wake-up.
    control_sleeps_.exchange(false, std::memory_order_acq_rel);
}

bool WorkerPort::rest() {
    // Pairs with the exchange of flush(); the look at the ring must come after it.
    control_sleeps_.exchange(true, std::memory_order_acq_rel);
    return events_.empty();
}

bool WorkerPort::push_command(WorkerCommand&& command) {
    if (!commands_.push(std::move(command))) return false;
    if (doorbell_fd_ >= 0) schedule::ring(doorbell_fd_);
    return true;
}

}  // namespace afd::daemon
