// SPDX-License-Identifier: Apache-2.0

#include "bench/limits/limit_steps.h"

#include <sys/mman.h>

#include <array>
#include <vector>

#include "ops/cpu/kernels.h"
#include "ops/format/packed_shape.h"
#include "proto/check.h"

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace afd::bench {
namespace {

constexpr size_t kPieceBytes = size_t{32} << 20;
constexpr size_t kSteps = 200'000;

// Keeps the compiler from dropping what nobody reads.
template <typename T>
[[gnu::always_inline]] inline void keep(const T& value) {
    asm volatile("" : : "m"(value) : "memory");
}

#ifdef __x86_64__
__attribute__((target("avx512f"))) void read_lines(const std::byte* data, size_t bytes) {
    __m512i sums[4] = {};
    for (size_t at = 0; at < bytes; at += 256) {
#pragma GCC unroll 4
        for (size_t i = 0; i < 4; ++i) {
            const std::byte* line = data + at + 64 * i;
            _mm_prefetch(reinterpret_cast<const char*>(line + 4096), _MM_HINT_T0);
            sums[i] = _mm512_add_epi64(sums[i], _mm512_load_si512(line));
        }
    }
    for (const __m512i& sum : sums) keep(sum);
}

// 24 independent sums hide the latency of both instructions. In assembler: a compiler sees that the
// sums are all the same and keeps one.
constexpr size_t kSums = 24;

// clang-format off
#define AFD_SUM(instruction, to) instruction " %%zmm30, %%zmm31, %%zmm" #to "\n\t"
#define AFD_SUMS(i)                                                                          \
    AFD_SUM(i, 0) AFD_SUM(i, 1) AFD_SUM(i, 2) AFD_SUM(i, 3) AFD_SUM(i, 4) AFD_SUM(i, 5)      \
    AFD_SUM(i, 6) AFD_SUM(i, 7) AFD_SUM(i, 8) AFD_SUM(i, 9) AFD_SUM(i, 10) AFD_SUM(i, 11)    \
    AFD_SUM(i, 12) AFD_SUM(i, 13) AFD_SUM(i, 14) AFD_SUM(i, 15) AFD_SUM(i, 16)               \
    AFD_SUM(i, 17) AFD_SUM(i, 18) AFD_SUM(i, 19) AFD_SUM(i, 20) AFD_SUM(i, 21)               \
    AFD_SUM(i, 22) AFD_SUM(i, 23)
#define AFD_SUM_REGISTERS                                                                    \
    "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", \
    "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "xmm16", "xmm17", "xmm18", "xmm19",         \
    "xmm20", "xmm21", "xmm22", "xmm23", "xmm30", "xmm31"
// clang-format on

__attribute__((target("avx512f,avx512bf16"))) void dot_bf16(size_t steps) {
    asm volatile("vpxorq %%zmm30, %%zmm30, %%zmm30\n\tvpxorq %%zmm31, %%zmm31, %%zmm31" ::
                     : AFD_SUM_REGISTERS);
    for (size_t step = 0; step < steps; ++step) {
        asm volatile(AFD_SUMS("vdpbf16ps")::: AFD_SUM_REGISTERS);
    }
}

__attribute__((target("avx512f,avx512vnni"))) void dot_int8(size_t steps) {
    asm volatile("vpxorq %%zmm30, %%zmm30, %%zmm30\n\tvpxorq %%zmm31, %%zmm31, %%zmm31" ::
                     : AFD_SUM_REGISTERS);
    for (size_t step = 0; step < steps; ++step) {
        asm volatile(AFD_SUMS("vpdpbusd")::: AFD_SUM_REGISTERS);
    }
}
#else
void read_lines(const std::byte* data, size_t bytes) {
    uint64_t sum = 0;
    for (size_t at = 0; at < bytes; at += 64) sum += static_cast<uint64_t>(data[at]);
    keep(sum);
}
#endif

}  // namespace

ReadStep::ReadStep(size_t bytes) {
    void* memory =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    AFD_ASSERT(memory != MAP_FAILED, "no memory of %zu bytes", bytes);
    ::madvise(memory, bytes, MADV_HUGEPAGE);
    memory_ = {static_cast<std::byte*>(memory), bytes};
    for (size_t at = 0; at < bytes; at += 4096) memory_[at] = std::byte{1};
}

ReadStep::~ReadStep() {
    ::munmap(memory_.data(), memory_.size());
}

double ReadStep::run(ops::Parallel& parallel) {
    const size_t num_threads = parallel.num_threads();
    if (next_ + num_threads * kPieceBytes > memory_.size()) next_ = 0;
    parallel.run(num_threads, [&](size_t task, unsigned) {
        read_lines(memory_.data() + next_ + task * kPieceBytes, kPieceBytes);
    });
    next_ += num_threads * kPieceBytes;
    return static_cast<double>(num_threads * kPieceBytes);
}

double bf16_step(ops::Parallel& parallel) {
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512bf16")) {
        parallel.run(parallel.num_threads(), [](size_t, unsigned) { dot_bf16(kSteps); });
        return parallel.num_threads() * static_cast<double>(kSteps * kSums * 64);
    }
#endif
    return 0 * parallel.num_threads();
}

double int8_step(ops::Parallel& parallel) {
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512vnni")) {
        parallel.run(parallel.num_threads(), [](size_t, unsigned) { dot_int8(kSteps); });
        return parallel.num_threads() * static_cast<double>(kSteps * kSums * 128);
    }
#endif
    return 0 * parallel.num_threads();
}

}  // namespace afd::bench
