// SPDX-License-Identifier: Apache-2.0
#include "clients/interrupt.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "clients/exit_code.h"
#include "proto/check.h"

namespace afd::client {
namespace {

std::atomic<const Cancellation*> target{nullptr};
std::atomic<int64_t> first_ms{0};  // When the first one came; 0: none has.
// One stop often sends two signals, of either kind.
constexpr int64_t kOneStopMs = 100;
static_assert(std::atomic<const Cancellation*>::is_always_lock_free, "used in a signal handler");

int64_t now_ms() {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

void on_interrupt(int) {
    // Only this handler touches the time, so there is nothing to order: relaxed.
    int64_t none = 0;
    const int64_t now = now_ms();
    if (!first_ms.compare_exchange_strong(none, now, std::memory_order_relaxed)) {
        if (now - none > kOneStopMs) _exit(kExitInterrupted);
        return;
    }
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
