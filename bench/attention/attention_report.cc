// SPDX-License-Identifier: Apache-2.0

#include "bench/attention/attention_report.h"

#include <algorithm>
#include <cstddef>
#include <cstdio>

#include "bench/limits/flag_round_trip.h"
#include "bench/limits/timing.h"
#include "daemon/config/cpu_plan.h"
#include "schedule/wait/adaptive_wait.h"

namespace afd::bench {
namespace {

constexpr size_t kRounds = 7;
constexpr uint64_t kLimitTimeUs = 15'000;
constexpr uint64_t kCallTimeUs = 50'000;
constexpr size_t kReadLeast = size_t{512} << 20;
// Helpers stay awake between two calls.
constexpr uint32_t kSpinUs = 5000;

// Amount a second of as many steps as fill a time; a step returns how much it did.
template <typename Step>
double rate_over(uint64_t time_us, const Step& step) {
    const uint64_t start_us = schedule::steady_now_us();
    double amount = 0;
    uint64_t elapsed_us = 0;
    do {
        amount += step();
        elapsed_us = schedule::steady_now_us() - start_us;
    } while (elapsed_us < time_us);
    return amount / static_cast<double>(elapsed_us) * 1e6;
}

// A value of each round.
struct Rounds {
    std::vector<double> seconds, of_peak, ratios, reads, peaks;
};

}  // namespace

double RowLimits::least_seconds(const Work& work) const {
    return std::max(work.bytes / read, work.operations / peak);
}

AttentionReport::AttentionReport(std::string_view filter, ops::NumericClass numeric_class)
    : filter_(filter),
      numeric_class_(numeric_class),
      loops_(limit_loops_of(numeric_class)),
      memory_(kReadLeast),
      cpus_(daemon::allowed_cpus()) {
    std::printf("%-40s %10s %8s %8s %7s %7s  %s\n",
                "",
                "us",
                "GFLOP/s",
                "GB/s",
                "of peak",
                "ratio",
                "limits: GFLOP/s, GB/s, flag ns");
}

threads::ThreadPool AttentionReport::make_pool(unsigned num_threads) const {
    return threads::ThreadPool(num_threads, kSpinUs, false, cpus_);
}

RowLimits AttentionReport::measure_limits(ops::Parallel& parallel) {
    RowLimits limits;
    limits.read = rate_over(kLimitTimeUs, [&] { return memory_.run(parallel); });
    limits.peak = rate_over(kLimitTimeUs, [&] { return bf16_step(parallel, loops_); });
    return limits;
}

double AttentionReport::round_trip_ns() const {
    if (num_cores() < 2) return 0;
    threads::ThreadPool two = make_pool(2);
    return flag_round_trip_ns(two);
}

double AttentionReport::row(const std::string& name,
                            ops::Parallel& parallel,
                            const Work& work,
                            const std::function<void()>& call,
                            const Ratio& ratio) {
    const double first_trip_ns = round_trip_ns();
    Rounds rounds;
    call();
    for (size_t round = 0; round < kRounds; ++round) {
        const RowLimits limits = measure_limits(parallel);
        const double seconds = 1 / rate_over(kCallTimeUs, [&] {
                                   call();
                                   return 1.0;
                               });
        rounds.seconds.push_back(seconds);
        rounds.of_peak.push_back(work.operations / seconds / limits.peak);
        rounds.ratios.push_back(ratio(seconds, limits));
        rounds.reads.push_back(limits.read);
        rounds.peaks.push_back(limits.peak);
    }
    const double time = median(rounds.seconds);
    std::printf("%-40s %10.1f %8.1f %8.2f %7.2f %7.2f  %.0f %.1f %.0f-%.0f\n",
                name.c_str(),
                time * 1e6,
                work.operations / time / 1e9,
                work.bytes / time / 1e9,
                median(rounds.of_peak),
                median(rounds.ratios),
                median(rounds.peaks) / 1e9,
                median(rounds.reads) / 1e9,
                first_trip_ns,
                round_trip_ns());
    std::fflush(stdout);
    return time;
}

}  // namespace afd::bench
