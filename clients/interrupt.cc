// SPDX-License-Identifier: Apache-2.0
#include "clients/interrupt.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>

#include "clients/exit_code.h"
#include "proto/check.h"

namespace afd::client {
namespace {

std::atomic<const Cancellation*> target{nullptr};
std::atomic<bool> interrupted{false};
static_assert(std::atomic<const Cancellation*>::is_always_lock_free, "used in a signal handler");

void on_interrupt(int) {
    // Only this handler touches the flag, so there is nothing to order: relaxed.
    if (interrupted.exchange(true, std::memory_order_relaxed)) _exit(kExitInterrupted);
    // Acquire: pairs with the release store in cancel_on_interrupt().
    target.load(std::memory_order_acquire)->request();
}

void handle(int signal) {
    struct sigaction action = {};
    action.sa_handler = on_interrupt;
    const int result = sigaction(signal, &action, nullptr);
    AFD_ASSERT(result == 0, "sigaction returned %d", result);
}

}  // namespace

void cancel_on_interrupt(const Cancellation& cancellation) {
    // Release: pairs with the handler's acquire load.
    target.store(&cancellation, std::memory_order_release);
    handle(SIGINT);
}

void cancel_on_termination() {
    handle(SIGTERM);
}

}  // namespace afd::client
