// SPDX-License-Identifier: Apache-2.0

#include "bench/experts/expert_machine.h"

#include <chrono>
#include <span>
#include <thread>

#include "bench/limits/flag_round_trip.h"
#include "bench/limits/timing.h"

namespace afd::bench {
namespace {

// How long threads without work look for some before they sleep, ours and the library's.
constexpr uint32_t kSpinUs = 100;
constexpr uint32_t kCores[] = {0, 1};

}  // namespace

ops::Parallel& ExpertMachine::parallel(unsigned num_threads) {
    if (num_threads == 1) return serial_;
    if (!pool_) {
        // The helper sleeps soon, so that the library's threads have the core to themselves.
        pool_ = std::make_unique<threads::ThreadPool>(
            num_threads, kSpinUs, false, std::span<const uint32_t>(kCores));
    }
    return *pool_;
}

double ExpertMachine::read_rate(ops::Parallel& parallel) {
    return rate_of([&] { return read_.run(parallel); });
}

double ExpertMachine::peak_rate(ops::WeightFormat format, ops::Parallel& parallel) {
    return rate_of([&] {
        return format == ops::WeightFormat::kInt8 ? int8_step(parallel) : bf16_step(parallel);
    });
}

double ExpertMachine::round_trip_ns(unsigned num_threads) {
    return num_threads > 1 ? flag_round_trip_ns(parallel(num_threads)) : 0;
}

void ExpertMachine::wait_for_sleepers() {
    std::this_thread::sleep_for(2 * std::chrono::microseconds(kSpinUs));
}

}  // namespace afd::bench
