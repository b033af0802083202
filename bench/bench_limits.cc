// SPDX-License-Identifier: Apache-2.0

// bench_limits [--short]: the limits of bench/core_limits.h as one line of JSON; on all cores, and
// without --short on one, too.

#include <cstdio>
#include <string_view>
#include <thread>

#include "bench/core_limits.h"

int main(int argc, char** argv) {
    const bool is_short = argc > 1 && std::string_view(argv[1]) == "--short";
    const unsigned num_cores = std::thread::hardware_concurrency();
    std::printf("{\"flag_round_trip_ns\": %.0f", afd::bench::flag_round_trip_ns());
    if (!is_short) {
        std::printf(", \"num_cores\": %u", num_cores);
        std::printf(", \"read_gbytes_per_s_1\": %.2f", afd::bench::read_gbytes_per_s(1));
        std::printf(", \"bf16_gflops_1\": %.1f", afd::bench::bf16_gflops(1));
    }
    std::printf(", \"read_gbytes_per_s\": %.2f", afd::bench::read_gbytes_per_s(num_cores));
    std::printf(", \"bf16_gflops\": %.1f}\n", afd::bench::bf16_gflops(num_cores));
    return 0;
}
