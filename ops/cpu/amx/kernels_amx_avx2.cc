// SPDX-License-Identifier: Apache-2.0

// Numeric class amx without the instruction: its sums on 8 lanes. Compiled with -mavx2 -mfma.

#include <immintrin.h>

#include "ops/cpu/amx/denormals_avx.h"
#include "ops/cpu/attend_pairs.h"
#include "ops/cpu/attend_rows.h"
#include "ops/cpu/avx2/words_avx2.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/pair_chains.h"
#include "ops/cpu/unpack_words.h"

namespace afd::ops::cpu {
namespace {

struct EightLanes {
    using Floats = __m256;
    using DenormalsAreZero = VectorDenormalsAreZero;
    static constexpr size_t kWidth = 8;
    // Of two registers each: eight chains, four weights and two values of x.
    static constexpr size_t kRows = 2;
    static constexpr size_t kPanelsInTurn = 1;

    static Floats zero() { return _mm256_setzero_ps(); }
    static Floats load(const float* from) { return _mm256_loadu_ps(from); }
    static void store(float* to, Floats x) { _mm256_storeu_ps(to, x); }
    static Floats broadcast(float value) { return _mm256_set1_ps(value); }
    static Floats broadcast_even(const Bf16* pair) { return broadcast(to_float(pair[0])); }
    static Floats broadcast_odd(const Bf16* pair) { return broadcast(to_float(pair[1])); }
    static Floats add(Floats a, Floats b) { return _mm256_add_ps(a, b); }
    static Floats fused(Floats a, Floats b, Floats sum) { return _mm256_fmadd_ps(a, b, sum); }
    static Floats widen(const Bf16* values) {
        const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(values));
        return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
    }
    static Floats even(const uint16_t* pairs) {
        return _mm256_castsi256_ps(_mm256_slli_epi32(load_pairs(pairs), 16));
    }
    static Floats odd(const uint16_t* pairs) {
        const __m256i high = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
        return _mm256_castsi256_ps(_mm256_and_si256(load_pairs(pairs), high));
    }

  private:
    static __m256i load_pairs(const uint16_t* pairs) {
        return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(pairs));
    }
};

}  // namespace

const Kernels& amx_avx2_kernels() {
    static const Kernels kTable = [] {
        Kernels table = avx2_kernels();
        // Both are multiplied as bf16 weights.
        table.shape.int4_rows = 0;
        table.shape.int4_product_rows = 0;
        table.shape.int4_zero_product_rows = 0;
        table.shape.fp8_rows = 0;
        table.shape.fp8_product_rows = 0;
        table.tile = pair_tile<EightLanes>;
        table.unpack_int4 = unpack_nibble_words<EightWords, 2, Nibble::kInt4>;
        table.unpack_mxfp4 = unpack_nibble_words<EightWords, 2, Nibble::kE2m1>;
        table.unpack_fp8 = unpack_fp8_words<EightWords, 2>;
        table.key_pair_heads = 0;
        table.begin_heads = begin_pairs;
        table.attend_block = attend_pairs<EightLanes>;
        table.attend_quantised = nullptr;
        table.quantised_heads_max = {};
        table.attend_spans = attend_pair_spans<EightLanes>;
        table.finish_heads = finish_heads;
        return table;
    }();
    return kTable;
}

}  // namespace afd::ops::cpu
