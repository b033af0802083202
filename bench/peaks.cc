// SPDX-License-Identifier: Apache-2.0

#include "bench/peaks.h"

#include <benchmark/benchmark.h>
#include <time.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace afd::bench {
namespace {

constexpr int kRepetitions = 5;
constexpr size_t kSteps = 4'000'000;

// Processor time of this thread, as Google Benchmark's rates use it: a busy neighbour process then
// does not count against us.
double seconds_now() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

#ifdef __x86_64__
// 24 independent sums hide the latency of both operations.
constexpr size_t kSums = 24;

__attribute__((target("avx512f,avx512bf16"))) void dot_bf16_steps(size_t steps, float* out) {
    __m512 sums[kSums];
    for (__m512& sum : sums) sum = _mm512_setzero_ps();
    const __m512i ones = _mm512_set1_epi32(0x3f803f80);
    for (size_t step = 0; step < steps; ++step) {
#pragma GCC unroll 24
        for (__m512& sum : sums) sum = _mm512_dpbf16_ps(sum, (__m512bh)ones, (__m512bh)ones);
    }
    for (size_t i = 0; i < kSums; ++i) _mm512_storeu_ps(out + 16 * i, sums[i]);
}

__attribute__((target("avx2,fma"))) void fma_steps(size_t steps, float* out) {
    __m256 sums[12];
    for (__m256& sum : sums) sum = _mm256_setzero_ps();
    const __m256 half = _mm256_set1_ps(0.5f);
    for (size_t step = 0; step < steps; ++step) {
#pragma GCC unroll 12
        for (__m256& sum : sums) sum = _mm256_fmadd_ps(half, half, sum);
    }
    for (size_t i = 0; i < 12; ++i) _mm256_storeu_ps(out + 8 * i, sums[i]);
}

template <typename Steps>
double best_rate(const Steps& steps, double flops_per_step) {
    float out[16 * kSums] = {};
    double best = 0;
    for (int i = 0; i < kRepetitions; ++i) {
        const double start = seconds_now();
        steps(kSteps, out);
        best =
            std::max(best, static_cast<double>(kSteps) * flops_per_step / (seconds_now() - start));
        benchmark::DoNotOptimize(out);
    }
    return best / 1e9;
}
#endif

}  // namespace

double peak_gflops() {
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512bf16")) return best_rate(dot_bf16_steps, kSums * 16 * 2 * 2);
    if (__builtin_cpu_supports("fma")) return best_rate(fma_steps, 12 * 8 * 2);
#endif
    return 0;
}

double read_gbytes_per_s() {
    const std::vector<uint64_t> memory((size_t{256} << 20) / 8, 1);
    double best = 0;
    for (int i = 0; i < kRepetitions; ++i) {
        const double start = seconds_now();
        uint64_t sums[8] = {};
        for (size_t at = 0; at < memory.size(); at += 8) {
            __builtin_prefetch(&memory[std::min(at + 512, memory.size() - 1)]);
            for (size_t j = 0; j < 8; ++j) sums[j] += memory[at + j];
        }
        benchmark::DoNotOptimize(sums);
        best = std::max(best, static_cast<double>(memory.size() * 8) / (seconds_now() - start));
    }
    return best / 1e9;
}

}  // namespace afd::bench
