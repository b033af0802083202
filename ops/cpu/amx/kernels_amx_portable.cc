// SPDX-License-Identifier: Apache-2.0

// Numeric class amx without the instruction, for every processor.

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

#include "ops/cpu/attend_pairs.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/pair_chains.h"
#include "ops/cpu/weight_kernels.h"

namespace afd::ops::cpu {
namespace {

constexpr float kLeastNormal = 0x1p-126f;

inline float without_denormal(float x) {
    return std::fabs(x) < kLeastNormal ? std::copysign(0.0f, x) : x;
}

// a · b + sum, rounded once. A result counts as denormal if it is one after rounding to 24 bits
// with an exponent as small as it takes: what fmaf rounds up to the least normal value from further
// below than half such a bit is one. Products of bf16 values and the difference are exact in
// double wherever that can happen.
inline float flushed_fma(float a, float b, float sum) {
    a = without_denormal(a);
    b = without_denormal(b);
    sum = without_denormal(sum);
    const float result = std::fmaf(a, b, sum);
    if (std::fabs(result) != kLeastNormal) return without_denormal(result);
    constexpr double kBound = 0x1p-126 - 0x1p-151;
    const double bound = std::copysign(kBound, static_cast<double>(result));
    const double above = std::fma(double{a}, double{b}, double{sum} - bound);
    const bool is_normal = result > 0 ? above >= 0 : above <= 0;
    return is_normal ? result : std::copysign(0.0f, result);
}

struct PlainLanes {
    static constexpr size_t kWidth = 8;
    static constexpr size_t kRows = 2;
    static constexpr size_t kPanelsInTurn = 1;
    using Floats = std::array<float, kWidth>;
    struct DenormalsAreZero {
        DenormalsAreZero() {}
    };

    static Floats zero() { return {}; }
    static Floats load(const float* from) {
        return each([&](size_t i) { return from[i]; });
    }
    static void store(float* to, const Floats& x) { std::copy_n(x.data(), kWidth, to); }
    static Floats broadcast(float value) {
        return each([&](size_t) { return value; });
    }
    static Floats broadcast_even(const Bf16* pair) { return broadcast(to_float(pair[0])); }
    static Floats broadcast_odd(const Bf16* pair) { return broadcast(to_float(pair[1])); }
    static Floats add(const Floats& a, const Floats& b) {
        return each([&](size_t i) {
            return without_denormal(without_denormal(a[i]) + without_denormal(b[i]));
        });
    }
    static Floats fused(const Floats& a, const Floats& b, const Floats& sum) {
        return each([&](size_t i) { return flushed_fma(a[i], b[i], sum[i]); });
    }
    static Floats widen(const Bf16* values) {
        return each([&](size_t i) { return to_float(values[i]); });
    }
    static Floats even(const uint16_t* pairs) {
        return each([&](size_t i) { return to_float(Bf16{pairs[2 * i]}); });
    }
    static Floats odd(const uint16_t* pairs) {
        return each([&](size_t i) { return to_float(Bf16{pairs[2 * i + 1]}); });
    }

  private:
    template <typename Lane>
    static Floats each(const Lane& lane) {
        Floats result;
        for (size_t i = 0; i < kWidth; ++i) result[i] = lane(i);
        return result;
    }
};

struct RoundOnce {
    float operator()(float a, float b, float sum) const { return std::fmaf(a, b, sum); }
};

}  // namespace

const Kernels& amx_portable_kernels() {
    static const Kernels kTable = [] {
        Kernels table = portable_kernels();
        table.tile = pair_tile<PlainLanes>;
        table.unpack_int4 = unpack_int4<2>;
        table.unpack_mxfp4 = unpack_mxfp4<2>;
        table.unpack_fp8 = unpack_fp8<2>;
        table.add_block = add_block<RoundOnce>;
        table.begin_heads = begin_pairs;
        table.attend_block = attend_pairs<PlainLanes>;
        table.attend_spans = attend_pair_spans<PlainLanes>;
        return table;
    }();
    return kTable;
}

}  // namespace afd::ops::cpu
