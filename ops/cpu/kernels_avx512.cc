// SPDX-License-Identifier: Apache-2.0

// Numeric class avx512: the arithmetic of avx2 on 16 lanes, for processors without vdpbf16ps.
// Compiled with -mavx512f -mavx512bw -mavx512vl -mavx512dq.

#include <immintrin.h>

#include "ops/cpu/activation_kernels.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/residual_row.h"
#include "ops/cpu/row_kernels.h"
#include "ops/cpu/rows_constant.h"
#include "ops/cpu/softmax_row.h"
#include "ops/cpu/swiglu_avx512.h"

namespace afd::ops::cpu {
namespace {

inline __m512 load_bf16(const uint16_t* source) {
    const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(source));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

// kRows rows x one panel.
template <size_t kRows>
void tile_of(const TileArguments& a, const uint16_t* panel, float* out) {
    __m512 low[kRows];
    __m512 high[kRows];
    const size_t out_stride = a.num_panels * kPanelColumns;
    unrolled<kRows>([&](size_t r) __attribute__((always_inline)) {
        low[r] = a.goes_on ? _mm512_loadu_ps(out + r * out_stride) : _mm512_setzero_ps();
        high[r] = a.goes_on ? _mm512_loadu_ps(out + r * out_stride + 16) : _mm512_setzero_ps();
    });
    const Bf16* x = a.x;
    const uint16_t* weights = panel;
    const bool fetches_next = a.fetch_next.from != nullptr;
    const char* fetched = fetches_next ? reinterpret_cast<const char*>(a.fetch_next.from)
                                       : reinterpret_cast<const char*>(panel) + a.prefetch_ahead;
    const size_t fetch_step =
        fetches_next ? a.fetch_next.step_bytes : kPanelColumns * sizeof *weights;
    for (size_t k = 0; k < a.depth; ++k, ++x, weights += kPanelColumns) {
        // One line a step, so that fetching keeps pace with multiplying instead of running ahead of
        // it.
        _mm_prefetch(fetched + k * fetch_step, _MM_HINT_T0);
        const __m512 w_low = load_bf16(weights);
        const __m512 w_high = load_bf16(weights + 16);
        unrolled<kRows>([&](size_t r) __attribute__((always_inline)) {
            const __m512 value = _mm512_set1_ps(to_float(x[r * a.x_stride]));
            low[r] = _mm512_fmadd_ps(value, w_low, low[r]);
            high[r] = _mm512_fmadd_ps(value, w_high, high[r]);
        });
    }
    unrolled<kRows>([&](size_t r) __attribute__((always_inline)) {
        _mm512_storeu_ps(out + r * out_stride, low[r]);
        _mm512_storeu_ps(out + r * out_stride + 16, high[r]);
    });
}

void tile(const TileArguments& a) {
    with_rows(a.num_rows, [&]<size_t kRows>() {
        for (size_t p = 0; p < a.num_panels; ++p) {
            tile_of<kRows>(a, a.panel + p * a.panel_elements, a.out + p * kPanelColumns);
        }
    });
}

}  // namespace

const Kernels& avx512_kernels() {
    static const Kernels kTable = [] {
        Kernels table = avx2_kernels();
        table.shape.rows = kAvx512TileRows;
        table.tile = tile;
        table.round_tile = round_tile_avx512;
        table.swiglu_tile = swiglu_tile_avx512;
        table.swiglu_row = swiglu_row_avx512;
        table.activate_rows = activate_rows_with(swiglu_row_avx512);
        // The loops of portable, vectorised for these instructions.
        table.scale_row = scale_row;
        table.exp_row = exp_row;
        table.round_row = round_row;
        table.scale_tile = scale_tile;
        table.softmax_step = softmax_step;
        table.residual = kResidualKernels;
        return table;
    }();
    return kTable;
}

}  // namespace afd::ops::cpu
