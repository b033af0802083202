// SPDX-License-Identifier: Apache-2.0

#include "bench/core_limits.h"

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <thread>
#include <vector>

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace afd::bench {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kRuns = 5;
constexpr std::chrono::milliseconds kRunTime{50};
constexpr size_t kBufferBytes = size_t{512} << 20;

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

// Core `index` of those that the process may use.
void pin_to(unsigned index) {
    cpu_set_t allowed;
    sched_getaffinity(0, sizeof(allowed), &allowed);
    unsigned rank = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (!CPU_ISSET(cpu, &allowed) || rank++ != index) continue;
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        pthread_setaffinity_np(pthread_self(), sizeof(one), &one);
    }
}

// Runs step(thread), which returns how much it did, over and over on every thread for kRunTime;
// the sum of the threads' amounts a second.
template <typename Step>
double rate(unsigned num_threads, const Step& step) {
    std::atomic<unsigned> num_ready{0};
    std::vector<double> rates(num_threads);
    std::vector<std::thread> threads;
    for (unsigned thread = 0; thread < num_threads; ++thread) {
        threads.emplace_back([&, thread] {
            pin_to(thread);
            // Only starts the threads together: nothing else is passed on.
            num_ready.fetch_add(1, std::memory_order_relaxed);
            while (num_ready.load(std::memory_order_relaxed) < num_threads) {
            }
            const Clock::time_point start = Clock::now();
            double amount = 0;
            do {
                amount += step(thread);
            } while (Clock::now() - start < kRunTime);
            rates[thread] = amount / seconds_since(start);
        });
    }
    for (std::thread& thread : threads) thread.join();
    double sum = 0;
    for (const double value : rates) sum += value;
    return sum;
}

template <typename Step>
double median_rate(unsigned num_threads, const Step& step) {
    std::vector<double> rates;
    for (int run = 0; run < kRuns; ++run) rates.push_back(rate(num_threads, step));
    return median(rates);
}

#ifdef __x86_64__
// 64-byte loads, prefetched 4 KiB ahead.
__attribute__((target("avx512f"))) uint64_t read_all(const std::byte* data, size_t bytes) {
    __m512i sums[4] = {};
    for (size_t at = 0; at < bytes; at += 256) {
#pragma GCC unroll 4
        for (size_t i = 0; i < 4; ++i) {
            const std::byte* line = data + at + 64 * i;
            _mm_prefetch(reinterpret_cast<const char*>(line + 4096), _MM_HINT_T0);
            sums[i] = _mm512_add_epi64(sums[i], _mm512_load_si512(line));
        }
    }
    alignas(64) uint64_t lanes[32];
    for (size_t i = 0; i < 4; ++i) _mm512_store_si512(lanes + 8 * i, sums[i]);
    return std::accumulate(std::begin(lanes), std::end(lanes), uint64_t{0});
}

// 24 independent sums hide the latency.
__attribute__((target("avx512f,avx512bf16"))) float dot_steps(size_t steps) {
    constexpr size_t kSums = 24;
    // Two calls with the same argument are not one to the compiler.
    asm volatile("" : "+r"(steps));
    __m512 sums[kSums];
    for (__m512& sum : sums) sum = _mm512_setzero_ps();
    const __m512i ones = _mm512_set1_epi32(0x3f803f80);
    for (size_t step = 0; step < steps; ++step) {
#pragma GCC unroll 24
        for (__m512& sum : sums) sum = _mm512_dpbf16_ps(sum, (__m512bh)ones, (__m512bh)ones);
    }
    alignas(64) float lanes[kSums * 16];
    for (size_t i = 0; i < kSums; ++i) _mm512_store_ps(lanes + 16 * i, sums[i]);
    return std::accumulate(std::begin(lanes), std::end(lanes), 0.0f);
}
#else
uint64_t read_all(const std::byte* data, size_t bytes) {
    uint64_t sum = 0;
    const auto* words = reinterpret_cast<const uint64_t*>(data);
    for (size_t i = 0; i < bytes / sizeof(uint64_t); ++i) sum += words[i];
    return sum;
}
#endif

// Keeps the compiler from dropping what nobody reads.
template <typename T>
void keep(T value) {
    asm volatile("" : : "r,m"(value) : "memory");
}

}  // namespace

double read_gbytes_per_s(unsigned num_threads) {
    void* memory =
        ::mmap(nullptr, kBufferBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 0;
    ::madvise(memory, kBufferBytes, MADV_HUGEPAGE);
    auto* data = static_cast<std::byte*>(memory);
    for (size_t at = 0; at < kBufferBytes; at += 4096) data[at] = std::byte{1};
    const size_t part = kBufferBytes / num_threads / 4096 * 4096;
    // A piece of a thread's part at a time, so that the clock is looked at often enough.
    const size_t bytes = part / 16 / 4096 * 4096;
    std::vector<size_t> next(num_threads * 16);
    const double result = median_rate(num_threads, [&](unsigned thread) {
        size_t& piece = next[size_t{thread} * 16];
        keep(read_all(data + thread * part + piece * bytes, bytes));
        piece = (piece + 1) % 16;
        return static_cast<double>(bytes);
    });
    ::munmap(memory, kBufferBytes);
    return result / 1e9;
}

double bf16_gflops(unsigned num_threads) {
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512bf16")) {
        constexpr size_t kSteps = 20'000;
        const double rate = median_rate(num_threads, [](unsigned) {
            keep(dot_steps(kSteps));
            return static_cast<double>(kSteps) * 24 * 16 * 2 * 2;
        });
        return rate / 1e9;
    }
#endif
    static_cast<void>(num_threads);
    return 0;
}

double flag_round_trip_ns() {
    cpu_set_t allowed;
    sched_getaffinity(0, sizeof(allowed), &allowed);
    if (CPU_COUNT(&allowed) < 2) return 0;
    constexpr uint32_t kTrips = 20'000;
    alignas(128) std::atomic<uint32_t> ping{0};
    alignas(128) std::atomic<uint32_t> pong{0};
    std::vector<double> times;
    std::thread answering([&] {
        pin_to(1);
        for (uint32_t i = 1; i <= kRuns * kTrips; ++i) {
            // Partner: the store of ping below.
            while (ping.load(std::memory_order_acquire) != i) {
            }
            // Partner: the load of pong below.
            pong.store(i, std::memory_order_release);
        }
    });
    std::thread asking([&] {
        pin_to(0);
        for (uint32_t run = 0; run < kRuns; ++run) {
            const Clock::time_point start = Clock::now();
            for (uint32_t i = run * kTrips + 1; i <= (run + 1) * kTrips; ++i) {
                // Partner: the load of ping above.
                ping.store(i, std::memory_order_release);
                // Partner: the store of pong above.
                while (pong.load(std::memory_order_acquire) != i) {
                }
            }
            times.push_back(seconds_since(start) * 1e9 / kTrips);
        }
    });
    answering.join();
    asking.join();
    return median(times);
}

}  // namespace afd::bench
