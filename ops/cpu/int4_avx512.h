// SPDX-License-Identifier: Apache-2.0
#pragma once

// Int4 weights for AVX-512 BF16 and VBMI: the products q · scale of a group are a table of eight
// magnitudes for each column, and vpermi2b looks up 64 of its bytes at a time. Tables of 16 columns
// take four registers: the low and the high bytes of 8 · 16 bf16 values, byte 16 · magnitude +
// column. Included by ops/cpu/kernels_avx512.cc only.

#include <immintrin.h>

#include "ops/cpu/kernels.h"
#include "ops/cpu/tile_avx512.h"
#include "ops/packed_shape.h"

namespace afd::ops::cpu {
namespace {

// 64 bytes hold four depth elements of all 32 columns.
constexpr size_t kInt4Step = 4;
constexpr size_t kInt4StepBytes = 64;

struct Int4Table {
    __m512i low[2];
    __m512i high[2];
};

// Even bytes of a, then of b; the other way round for the odd ones.
inline __m512i even_bytes() {
    alignas(64) static constexpr struct Order {
        uint8_t place[64];
        constexpr Order() : place() {
            for (int i = 0; i < 64; ++i) place[i] = static_cast<uint8_t>(2 * i);
        }
    } kOrder;
    return _mm512_load_si512(kOrder.place);
}

// `scales`: 16 bf16.
inline Int4Table make_table(const std::byte* scales) {
    const __m256i bits = _mm256_load_si256(reinterpret_cast<const __m256i*>(scales));
    const __m512 one = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
    const __m512 two = _mm512_add_ps(one, one);
    const __m512 three = _mm512_add_ps(two, one);
    const __m512 four = _mm512_add_ps(two, two);
    const __m512 five = _mm512_add_ps(four, one);
    const __m512 six = _mm512_add_ps(three, three);
    const __m512 seven = _mm512_add_ps(four, three);
    const auto round_two = [](__m512 first, __m512 second) {
        return (__m512i)_mm512_cvtne2ps_pbh(second, first);
    };
    const __m512i values[4] = {round_two(_mm512_setzero_ps(), one),
                               round_two(two, three),
                               round_two(four, five),
                               round_two(six, seven)};
    const __m512i even = even_bytes();
    const __m512i odd = _mm512_or_si512(even, _mm512_set1_epi8(1));
    Int4Table table;
    for (size_t i = 0; i < 2; ++i) {
        table.low[i] = _mm512_permutex2var_epi8(values[2 * i], even, values[2 * i + 1]);
        table.high[i] = _mm512_permutex2var_epi8(values[2 * i], odd, values[2 * i + 1]);
    }
    return table;
}

struct Pairs {
    __m512i first;   // Elements 0 and 1 of 16 columns.
    __m512i second;  // Elements 2 and 3.
};

// `nibbles`: sign and magnitude in the high four bits of every byte; the others are ignored.
inline Pairs look_up(const Int4Table& table, __m512i nibbles) {
    // Byte 16·a + 8·b + 2·c + d belongs to column 4·a + c.
    const __m512i columns = _mm512_set_epi32(0x0f0f0e0e,
                                             0x0d0d0c0c,
                                             0x0f0f0e0e,
                                             0x0d0d0c0c,
                                             0x0b0b0a0a,
                                             0x09090808,
                                             0x0b0b0a0a,
                                             0x09090808,
                                             0x07070606,
                                             0x05050404,
                                             0x07070606,
                                             0x05050404,
                                             0x03030202,
                                             0x01010000,
                                             0x03030202,
                                             0x01010000);
    constexpr int kAndOr = 0xea;   // (a & b) | c
    constexpr int kAndXor = 0x6a;  // (a & b) ^ c
    const __m512i places =
        _mm512_ternarylogic_epi32(nibbles, _mm512_set1_epi8(0x70), columns, kAndOr);
    const __m512i low = _mm512_permutex2var_epi8(table.low[0], places, table.low[1]);
    const __m512i magnitude = _mm512_permutex2var_epi8(table.high[0], places, table.high[1]);
    const __m512i high = _mm512_ternarylogic_epi32(
        nibbles, _mm512_set1_epi8(static_cast<char>(0x80)), magnitude, kAndXor);
    return {_mm512_unpacklo_epi8(low, high), _mm512_unpackhi_epi8(low, high)};
}

inline __m512i low_nibbles(__m512i bytes) {
    return _mm512_slli_epi16(bytes, 4);
}

// The layout of a bf16 panel: two registers for a pair of elements.
void unpack_int4(const UnpackArguments& a) {
    const std::byte* at = a.panel;
    uint16_t* out = a.out;
    for (size_t k = 0; k < a.depth; k += a.group_size) {
        const size_t count = a.depth - k < a.group_size ? a.depth - k : a.group_size;
        const Int4Table left = make_table(at);
        const Int4Table right = make_table(at + 32);
        at += kInt4ScaleBytes;
        for (size_t i = 0; i < count; i += kInt4Step, at += kInt4StepBytes) {
            prefetch_ahead<Nearness::kFirstLevel>(at, a.prefetch_ahead);
            const __m512i bytes = _mm512_load_si512(at);
            const Pairs l = look_up(left, low_nibbles(bytes));
            const Pairs r = look_up(right, bytes);
            _mm512_store_si512(out, l.first);
            _mm512_store_si512(out + kColumns, r.first);
            if (i + 2 < count) {
                _mm512_store_si512(out + 2 * kColumns, l.second);
                _mm512_store_si512(out + 3 * kColumns, r.second);
            }
            out += kInt4Step * kColumns;
        }
    }
}

// kRows rows x one panel, unpacked in registers.
template <size_t kRows>
void int4_tile_of(const Int4TileArguments& a) {
    __m512 low[kRows];
    __m512 high[kRows];
    for (size_t r = 0; r < kRows; ++r) low[r] = high[r] = _mm512_setzero_ps();
    const std::byte* at = a.panel;
    const Bf16* x = a.x;
    const auto add = [&](const __m512i& l, const __m512i& r, const Bf16* from, auto&& broadcast_x)
        __attribute__((always_inline)) {
        for (size_t row = 0; row < kRows; ++row) {
            const __m512i value = broadcast_x(from + row * a.x_stride);
            low[row] = dot_pairs(low[row], l, value);
            high[row] = dot_pairs(high[row], r, value);
        }
    };
    for (size_t k = 0; k < a.depth; k += a.group_size) {
        const size_t count = a.depth - k < a.group_size ? a.depth - k : a.group_size;
        prefetch_ahead<Nearness::kFirstLevel>(at, a.prefetch_ahead);
        const Int4Table left = make_table(at);
        const Int4Table right = make_table(at + 32);
        at += kInt4ScaleBytes;
        size_t i = 0;
        for (; i + kInt4Step <= count; i += kInt4Step, at += kInt4StepBytes, x += kInt4Step) {
            prefetch_ahead<Nearness::kFirstLevel>(at, a.prefetch_ahead);
            const __m512i bytes = _mm512_load_si512(at);
            const Pairs l = look_up(left, low_nibbles(bytes));
            const Pairs r = look_up(right, bytes);
            add(l.first, r.first, x, broadcast_pair);
            add(l.second, r.second, x + 2, broadcast_pair);
        }
        if (i == count) continue;
        const __m512i bytes = _mm512_load_si512(at);
        const Pairs l = look_up(left, low_nibbles(bytes));
        const Pairs r = look_up(right, bytes);
        if (count - i == 1) {
            add(l.first, r.first, x, broadcast_last);
        } else {
            add(l.first, r.first, x, broadcast_pair);
            if (count - i == 3) add(l.second, r.second, x + 2, broadcast_last);
        }
    }
    for (size_t r = 0; r < kRows; ++r) {
        _mm512_storeu_ps(a.out + r * kColumns, low[r]);
        _mm512_storeu_ps(a.out + r * kColumns + 16, high[r]);
    }
}

void int4_tile(const Int4TileArguments& a) {
    static_assert(kInt4TileRows == 8);
    switch (a.num_rows) {
        case 1:
            return int4_tile_of<1>(a);
        case 2:
            return int4_tile_of<2>(a);
        case 3:
            return int4_tile_of<3>(a);
        case 4:
            return int4_tile_of<4>(a);
        case 5:
            return int4_tile_of<5>(a);
        case 6:
            return int4_tile_of<6>(a);
        case 7:
            return int4_tile_of<7>(a);
        default:
            return int4_tile_of<8>(a);
    }
}

}  // namespace
}  // namespace afd::ops::cpu
