// SPDX-License-Identifier: Apache-2.0

#include "bench/limits/flag_round_trip.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>

namespace afd::bench {
namespace {

constexpr uint32_t kRuns = 5;
constexpr uint32_t kTrips = 20'000;

struct alignas(128) Flag {
    std::atomic<uint32_t> value{0};

    void await(uint32_t wanted) const {
        // Partner: the store in set() by the other side.
        while (value.load(std::memory_order_acquire) != wanted) __builtin_ia32_pause();
    }
    void set(uint32_t to) {
        // Partner: the load in await() by the other side.
        value.store(to, std::memory_order_release);
    }
};

}  // namespace

double flag_round_trip_ns(ops::Parallel& parallel) {
    using Clock = std::chrono::steady_clock;
    Flag ping;
    Flag pong;
    std::array<double, kRuns> ns{};
    parallel.run(2, [&](size_t task, unsigned) {
        for (uint32_t run = 0; run < kRuns; ++run) {
            const Clock::time_point start = Clock::now();
            for (uint32_t i = run * kTrips + 1; i <= (run + 1) * kTrips; ++i) {
                if (task == 0) {
                    ping.set(i);
                    pong.await(i);
                } else {
                    ping.await(i);
                    pong.set(i);
                }
            }
            if (task != 0) continue;
            ns[run] =
                std::chrono::duration<double, std::nano>(Clock::now() - start).count() / kTrips;
        }
    });
    std::sort(ns.begin(), ns.end());
    return ns[kRuns / 2];
}

}  // namespace afd::bench
