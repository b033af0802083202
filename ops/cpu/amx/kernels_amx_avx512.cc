// SPDX-License-Identifier: Apache-2.0

// Numeric class amx without the instruction: its sums on 16 lanes. Compiled with -mavx512f
// -mavx512bw -mavx512vl -mavx512dq.

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "ops/cpu/amx/denormals_avx.h"
#include "ops/cpu/attend_pairs.h"
#include "ops/cpu/avx512/words_avx512.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/pair_chains.h"
#include "ops/cpu/unpack_words.h"

namespace afd::ops::cpu {
namespace {

struct SixteenLanes {
    using Floats = __m512;
    using DenormalsAreZero = VectorDenormalsAreZero;
    static constexpr size_t kWidth = 16;
    // Of two registers each: 16 chains, four weights and two values of x. With two panels in turn,
    // three rows and more leave the registers, and are as fast as memory all the same.
    static constexpr size_t kRows = 4;
    static constexpr size_t kPanelsInTurn = 2;

    static Floats zero() { return _mm512_setzero_ps(); }
    static Floats load(const float* from) { return _mm512_loadu_ps(from); }
    static void store(float* to, Floats x) { _mm512_storeu_ps(to, x); }
    static Floats broadcast(float value) { return _mm512_set1_ps(value); }
    static Floats broadcast_even(const Bf16* pair) {
        return _mm512_castsi512_ps(_mm512_slli_epi32(broadcast_pair(pair), 16));
    }
    static Floats broadcast_odd(const Bf16* pair) {
        return _mm512_castsi512_ps(_mm512_and_si512(broadcast_pair(pair), high_halves()));
    }
    static Floats add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
    static Floats fused(Floats a, Floats b, Floats sum) { return _mm512_fmadd_ps(a, b, sum); }
    static Floats widen(const Bf16* values) {
        const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(values));
        return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
    }
    static Floats even(const uint16_t* pairs) {
        return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(pairs), 16));
    }
    static Floats odd(const uint16_t* pairs) {
        return _mm512_castsi512_ps(_mm512_and_si512(_mm512_loadu_si512(pairs), high_halves()));
    }

  private:
    static __m512i high_halves() { return _mm512_set1_epi32(static_cast<int>(0xffff0000u)); }
    static __m512i broadcast_pair(const Bf16* pair) {
        int32_t bits;
        std::memcpy(&bits, pair, sizeof bits);
        return _mm512_set1_epi32(bits);
    }
};

}  // namespace

const Kernels& amx_avx512_kernels() {
    static const Kernels kTable = [] {
        // Exact products with int8 weights are the fastest that there are.
        const bool has_pairs = supported(NumericClass::kAvx512Bf16);
        Kernels table = has_pairs ? avx512_bf16_kernels() : avx512_kernels();
        // Both are multiplied as bf16 weights.
        table.shape.int4_rows = 0;
        table.shape.int4_product_rows = 0;
        table.shape.int4_zero_product_rows = 0;
        table.unpack_groups = nullptr;
        table.group_tile = nullptr;
        table.shape.fp8_rows = 0;
        table.shape.fp8_product_rows = 0;
        table.tile = pair_tile<SixteenLanes>;
        if (!has_pairs) {
            table.unpack_int4 = unpack_nibble_words<SixteenWords, 2, Nibble::kInt4>;
            table.unpack_mxfp4 = unpack_nibble_words<SixteenWords, 2, Nibble::kE2m1>;
            table.unpack_fp8 = unpack_fp8_words<SixteenWords, 2>;
        }
        table.key_pair_heads = 0;
        table.begin_heads = begin_pairs;
        table.attend_block = attend_pairs<SixteenLanes>;
        table.attend_quantised = nullptr;
        table.quantised_heads_max = {};
        table.attend_spans = attend_pair_spans<SixteenLanes>;
        table.finish_heads = avx512_kernels().finish_heads;
        return table;
    }();
    return kTable;
}

}  // namespace afd::ops::cpu
