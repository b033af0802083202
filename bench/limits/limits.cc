// SPDX-License-Identifier: Apache-2.0

#include "bench/limits/limits.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>

#include "bench/limits/limit_steps.h"

namespace afd::bench {
namespace {

constexpr size_t kReadLeast = size_t{512} << 20;
constexpr size_t kRuns = 5;
constexpr std::chrono::milliseconds kRunTime{50};

// Amount a second of step(), which returns how much it did.
template <typename Step>
double median_rate(const Step& step) {
    using Clock = std::chrono::steady_clock;
    std::array<double, kRuns> rates{};
    step();
    for (double& rate : rates) {
        const Clock::time_point start = Clock::now();
        double amount = 0;
        while (Clock::now() - start < kRunTime) amount += step();
        rate = amount / std::chrono::duration<double>(Clock::now() - start).count();
    }
    std::sort(rates.begin(), rates.end());
    return rates[kRuns / 2];
}

}  // namespace

double read_gbytes_per_s(ops::Parallel& parallel) {
    ReadStep memory(kReadLeast);
    return median_rate([&] { return memory.run(parallel); }) / 1e9;
}

double bf16_gflops(ops::Parallel& parallel) {
    return median_rate([&] { return bf16_step(parallel); }) / 1e9;
}

}  // namespace afd::bench
