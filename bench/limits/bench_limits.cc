// SPDX-License-Identifier: Apache-2.0

// bench_limits [--short]: the round trip of a flag and the limits of bench/limits/limits.h as one
// line of JSON; on all cores, a thread pinned to each, and without --short on one, too.

#include <cstdio>
#include <string_view>
#include <vector>

#include "bench/limits/flag_round_trip.h"
#include "bench/limits/limits.h"
#include "daemon/config/cpu_plan.h"
#include "threads/thread_pool.h"

namespace {

// Helpers stay awake between two steps.
constexpr uint32_t kSpinUs = 5000;

}  // namespace

int main(int argc, char** argv) {
    const bool is_short = argc > 1 && std::string_view(argv[1]) == "--short";
    const std::vector<uint32_t> cpus = afd::daemon::allowed_cpus();
    const auto num_cores = static_cast<unsigned>(cpus.size());
    afd::threads::ThreadPool pool(num_cores, kSpinUs, false, cpus);
    std::printf("{\"flag_round_trip_ns\": %.0f",
                num_cores > 1 ? afd::bench::flag_round_trip_ns(pool) : 0.0);
    if (!is_short) {
        afd::ops::SerialParallel one;
        std::printf(", \"num_cores\": %u", num_cores);
        std::printf(", \"read_gbytes_per_s_1\": %.2f", afd::bench::read_gbytes_per_s(one));
        std::printf(", \"bf16_gflops_1\": %.1f", afd::bench::bf16_gflops(one));
    }
    std::printf(", \"read_gbytes_per_s\": %.2f", afd::bench::read_gbytes_per_s(pool));
    std::printf(", \"bf16_gflops\": %.1f}\n", afd::bench::bf16_gflops(pool));
    return 0;
}
