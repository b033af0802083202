// SPDX-License-Identifier: Apache-2.0

#include "bench/limits/limit_loops.h"

#include <cstdint>
#include <random>

#include "ops/format/amx_support.h"
#include "ops/format/numeric_class.h"

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace afd::bench {
namespace {

void read_portable(const std::byte* data, size_t bytes) {
    uint64_t sum = 0;
    for (size_t at = 0; at < bytes; at += 64) sum += static_cast<uint64_t>(data[at]);
    asm volatile("" : : "r"(sum));  // Or a compiler drops what nobody reads.
}

constexpr LimitLoops kPortable{.read = read_portable,
                               .bf16 = nullptr,
                               .int8 = nullptr,
                               .bf16_operations = 0,
                               .int8_operations = 0};

#ifdef __x86_64__

constexpr size_t kPrefetchBytes = 4096;

__attribute__((target("avx512f"))) void read_zmm(const std::byte* data, size_t bytes) {
    __m512i sums[4] = {};
    for (size_t at = 0; at < bytes; at += 256) {
#pragma GCC unroll 4
        for (size_t i = 0; i < 4; ++i) {
            const std::byte* line = data + at + 64 * i;
            _mm_prefetch(reinterpret_cast<const char*>(line + kPrefetchBytes), _MM_HINT_T0);
            sums[i] = _mm512_add_epi64(sums[i], _mm512_load_si512(line));
        }
    }
    for (const __m512i& sum : sums) asm volatile("" : : "v"(sum));
}

__attribute__((target("avx2"))) void read_ymm(const std::byte* data, size_t bytes) {
    __m256i sums[8] = {};
    for (size_t at = 0; at < bytes; at += 256) {
#pragma GCC unroll 8
        for (size_t i = 0; i < 8; ++i) {
            const std::byte* half = data + at + 32 * i;
            if (i % 2 == 0) {
                _mm_prefetch(reinterpret_cast<const char*>(half + kPrefetchBytes), _MM_HINT_T0);
            }
            sums[i] = _mm256_add_epi64(sums[i],
                                       _mm256_load_si256(reinterpret_cast<const __m256i*>(half)));
        }
    }
    for (const __m256i& sum : sums) asm volatile("" : : "x"(sum));
}

// As many independent sums as hide the latency of an instruction and fit the registers. In
// assembler: a compiler sees that the sums are all the same and keeps one.
constexpr double kSumsZmm = 24;
constexpr double kSumsYmm = 12;
constexpr double kSumsXmm = 12;

// clang-format off
#define AFD_ZMM(instruction, to) instruction " %%zmm30, %%zmm31, %%zmm" #to "\n\t"
#define AFD_ZMM_SUMS(i)                                                                      \
    AFD_ZMM(i, 0) AFD_ZMM(i, 1) AFD_ZMM(i, 2) AFD_ZMM(i, 3) AFD_ZMM(i, 4) AFD_ZMM(i, 5)      \
    AFD_ZMM(i, 6) AFD_ZMM(i, 7) AFD_ZMM(i, 8) AFD_ZMM(i, 9) AFD_ZMM(i, 10) AFD_ZMM(i, 11)    \
    AFD_ZMM(i, 12) AFD_ZMM(i, 13) AFD_ZMM(i, 14) AFD_ZMM(i, 15) AFD_ZMM(i, 16)               \
    AFD_ZMM(i, 17) AFD_ZMM(i, 18) AFD_ZMM(i, 19) AFD_ZMM(i, 20) AFD_ZMM(i, 21)               \
    AFD_ZMM(i, 22) AFD_ZMM(i, 23)
#define AFD_ZMM_REGISTERS                                                                    \
    "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", \
    "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "xmm16", "xmm17", "xmm18", "xmm19",         \
    "xmm20", "xmm21", "xmm22", "xmm23", "xmm30", "xmm31"

#define AFD_FMA(to) "vfmadd231ps %%ymm14, %%ymm15, %%ymm" #to "\n\t"
#define AFD_PAIRS(to)                                                                        \
    "vpmaddubsw %%ymm14, %%ymm15, %%ymm13\n\t"                                               \
    "vpmaddwd %%ymm14, %%ymm13, %%ymm13\n\t"                                                 \
    "vpaddd %%ymm13, %%ymm" #to ", %%ymm" #to "\n\t"
#define AFD_MULTIPLY_ADD(to)                                                                 \
    "movaps %%xmm14, %%xmm13\n\t"                                                            \
    "mulps %%xmm15, %%xmm13\n\t"                                                             \
    "addps %%xmm13, %%xmm" #to "\n\t"
#define AFD_TWELVE_SUMS(sum)                                                                 \
    sum(0) sum(1) sum(2) sum(3) sum(4) sum(5) sum(6) sum(7) sum(8) sum(9) sum(10) sum(11)
#define AFD_TWELVE_REGISTERS                                                                 \
    "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", \
    "xmm11", "xmm13", "xmm14", "xmm15"
// clang-format on

// Zeros: no product is slow because of a denormal or of power.
#define AFD_ZMM_ZEROS "vpxorq %%zmm30, %%zmm30, %%zmm30\n\tvpxorq %%zmm31, %%zmm31, %%zmm31"
#define AFD_XMM_ZEROS "xorps %%xmm14, %%xmm14\n\txorps %%xmm15, %%xmm15"
#define AFD_YMM_ZEROS "vpxor %%ymm14, %%ymm14, %%ymm14\n\tvpxor %%ymm15, %%ymm15, %%ymm15"
// The registers come last: their list has commas.
#define AFD_LOOP(name, isa, zeros, sums, ...)                                          \
    __attribute__((target(isa))) void name(size_t steps) {                             \
        asm volatile(zeros::: __VA_ARGS__);                                            \
        for (size_t step = 0; step < steps; ++step) asm volatile(sums::: __VA_ARGS__); \
    }

AFD_LOOP(
    bf16_zmm, "avx512f,avx512bf16", AFD_ZMM_ZEROS, AFD_ZMM_SUMS("vdpbf16ps"), AFD_ZMM_REGISTERS)
AFD_LOOP(fma_zmm, "avx512f", AFD_ZMM_ZEROS, AFD_ZMM_SUMS("vfmadd231ps"), AFD_ZMM_REGISTERS)
AFD_LOOP(int8_zmm, "avx512f,avx512vnni", AFD_ZMM_ZEROS, AFD_ZMM_SUMS("vpdpbusd"), AFD_ZMM_REGISTERS)
AFD_LOOP(fma_ymm, "avx2,fma", AFD_YMM_ZEROS, AFD_TWELVE_SUMS(AFD_FMA), AFD_TWELVE_REGISTERS)
AFD_LOOP(multiply_add_xmm,
         "sse2",
         AFD_XMM_ZEROS,
         AFD_TWELVE_SUMS(AFD_MULTIPLY_ADD),
         AFD_TWELVE_REGISTERS)
AFD_LOOP(int8_ymm, "avx2", AFD_YMM_ZEROS, AFD_TWELVE_SUMS(AFD_PAIRS), AFD_TWELVE_REGISTERS)

// Six sums of 16 x 16 in tiles, each of 16 products of four bytes of depth.
constexpr double kSumsTile = 6;
constexpr double kTileProducts = 16 * 16 * 16;
constexpr size_t kTileElements = 512;

struct alignas(64) TileSizes {
    uint8_t palette = 1;
    uint8_t unused[15] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// clang-format off
#define AFD_TILE(instruction, to) instruction " %%tmm7, %%tmm6, %%tmm" #to "\n\t"
#define AFD_TILE_SUMS(i)                                                                     \
    AFD_TILE(i, 0) AFD_TILE(i, 1) AFD_TILE(i, 2) AFD_TILE(i, 3) AFD_TILE(i, 4) AFD_TILE(i, 5)
// clang-format on

// Random bits and, as bf16, magnitudes of 0.008 to 0.016 of both signs, as the experts of
// bench_experts are. Not zeros: a server at the limit of its power multiplies these more slowly, so
// that nothing real comes near a peak of zeros. On a virtual machine of 16 cores a product of zeros
// took 6.3 ns, and of such values 7.1 or, with busy neighbours, 16.6.
struct TileValues {
    alignas(64) uint16_t values[2][kTileElements];

    TileValues(uint16_t mask, uint16_t base) {
        std::mt19937 engine(1);
        for (auto& tile : values) {
            for (uint16_t& value : tile) {
                value = static_cast<uint16_t>(base | (static_cast<uint16_t>(engine()) & mask));
            }
        }
    }
};

#define AFD_TILE_LOOP(name, instruction, mask, base)                                            \
    void name(size_t steps) {                                                                   \
        static const TileSizes kSizes{};                                                        \
        static const TileValues kValues(mask, base);                                            \
        asm volatile("ldtilecfg %0" : : "m"(kSizes));                                           \
        asm volatile("tileloadd (%0,%2,1), %%tmm6\n\ttileloadd (%1,%2,1), %%tmm7"               \
                     :                                                                          \
                     : "r"(kValues.values[0]), "r"(kValues.values[1]), "r"(size_t{64})          \
                     : "memory");                                                               \
        for (size_t step = 0; step < steps; ++step) asm volatile(AFD_TILE_SUMS(instruction)::); \
        asm volatile("tilerelease");                                                            \
    }
AFD_TILE_LOOP(bf16_tile, "tdpbf16ps", 0x807fu, 0x3c00u)
AFD_TILE_LOOP(int8_tile, "tdpbsud", 0xffffu, 0u)

LimitLoops of_this_processor() {
    LimitLoops loops = kPortable;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        loops = {.read = read_ymm,
                 .bf16 = fma_ymm,
                 .int8 = int8_ymm,
                 .bf16_operations = kSumsYmm * 16,
                 .int8_operations = kSumsYmm * 64};
    }
    if (__builtin_cpu_supports("avx512f")) {
        loops.read = read_zmm;
        loops.bf16 = fma_zmm;
        loops.bf16_operations = kSumsZmm * 32;
    }
    if (__builtin_cpu_supports("avx512vnni")) {
        loops.int8 = int8_zmm;
        loops.int8_operations = kSumsZmm * 128;
    }
    // Where pairs are no slower than two multiply-adds.
    if (ops::best_numeric_class() == ops::NumericClass::kAvx512Bf16) {
        loops.bf16 = bf16_zmm;
        loops.bf16_operations = kSumsZmm * 64;
    }
    if (ops::amx_support().is_offered) {
        loops.bf16 = bf16_tile;
        loops.int8 = int8_tile;
        loops.bf16_operations = kSumsTile * kTileProducts * 2 * 2;
        loops.int8_operations = kSumsTile * kTileProducts * 4 * 2;
    }
    return loops;
}

LimitLoops of_class(ops::NumericClass numeric_class) {
    LimitLoops loops = of_this_processor();
    const auto take_bf16 = [&](void (*loop)(size_t), double operations) {
        loops.bf16 = loop;
        loops.bf16_operations = operations;
    };
    if (!ops::is_native(numeric_class)) return loops;
    switch (numeric_class) {
        case ops::NumericClass::kPortable:
            take_bf16(multiply_add_xmm, kSumsXmm * 8);
            break;
        case ops::NumericClass::kAvx2:
            take_bf16(fma_ymm, kSumsYmm * 16);
            break;
        case ops::NumericClass::kAvx512:
            take_bf16(fma_zmm, kSumsZmm * 32);
            break;
        case ops::NumericClass::kAvx512Bf16:
            take_bf16(bf16_zmm, kSumsZmm * 64);
            break;
        case ops::NumericClass::kAmx:
            break;
    }
    return loops;
}

#else

LimitLoops of_this_processor() {
    return kPortable;
}

LimitLoops of_class(ops::NumericClass) {
    return kPortable;
}

#endif

}  // namespace

const LimitLoops& limit_loops() {
    static const LimitLoops loops = of_this_processor();
    return loops;
}

LimitLoops limit_loops_of(ops::NumericClass numeric_class) {
    return of_class(numeric_class);
}

}  // namespace afd::bench
