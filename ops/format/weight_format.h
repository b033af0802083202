// SPDX-License-Identifier: Apache-2.0
#pragma once

// WeightFormat: how the elements of a weight matrix are stored, and the quantised matrices that
// checkpoints hold.
//
// A matrix W is [num_outputs N, depth K].
//   bf16        W as it is.
//   int8        W[n, k] ≈ q[n, k] · scale[n], q int8, scale fp32. Activations are quantised per row
//               (ops/linear/quantise.h); sums are exact int32: y = float(sum) · row scale ·
//               scale[n].
//   int4-g32, int4-g64
//               W[n, k] = (q[n, k] · scale[n, k / group]) →bf16, q in [-8, 7], scale bf16; from
//               there on as bf16, or with rows of int8 (ops/format/int4_rows.h). What is written
//               here has no -8, other programs' weights have. Groups of 32 or 64 elements along K;
//               the last one may be shorter.
//   int4-g32-fp16, int4-g64-fp16
//               The same with fp16 scales.
//   int4-g32-zero, int4-g64-zero, int4-g32-fp16-zero, int4-g64-fp16-zero
//               W[n, k] = ((q[n, k] - zero[n, k / group]) · scale[n, k / group]) →bf16, q and zero
//               in [-8, 7]: int4 of other programs that is not symmetric. Nothing here writes it.
//   mxfp4       W[n, k] = e2m1[n, k] · scale[n, k / 32]; scales 2^-127 ... 2^127, as bf16. The
//               product is a bf16 whatever the scale, subnormals included, unless it is too large
//               for one: such a weight is not packed (model/checkpoint/stored_matrix.h refuses
//               it). From there on as bf16.
//   fp8-b128    W[n, k] = value[n, k] · scale[n / 128, k / 128]; values e4m3, all of which are
//               bf16 values too, scales fp32. Products multiply by the values; the sum of each 128
//               elements along K is multiplied by its scale. The last blocks of both directions may
//               be shorter.
// Source: docs/specification.md, sections 9 and 10.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "ops/tensor/bf16.h"
#include "ops/tensor/e4m3.h"
#include "ops/tensor/fp16.h"
#include "ops/tensor/tensor_view.h"

namespace afd::ops {

// The values stand in files of packed weights.
enum class WeightFormat : uint8_t {
    kBf16 = 0,
    kInt8 = 1,
    kInt4Group32 = 2,
    kInt4Group64 = 3,
    kInt4Group32Fp16 = 4,
    kInt4Group64Fp16 = 5,
    kFp8Block128 = 6,
    kMxfp4 = 7,
    kInt4Group32Zero = 8,
    kInt4Group64Zero = 9,
    kInt4Group32Fp16Zero = 10,
    kInt4Group64Fp16Zero = 11,
};

inline constexpr std::array kWeightFormats = {WeightFormat::kBf16,
                                              WeightFormat::kInt8,
                                              WeightFormat::kInt4Group32,
                                              WeightFormat::kInt4Group64,
                                              WeightFormat::kInt4Group32Fp16,
                                              WeightFormat::kInt4Group64Fp16,
                                              WeightFormat::kFp8Block128,
                                              WeightFormat::kMxfp4,
                                              WeightFormat::kInt4Group32Zero,
                                              WeightFormat::kInt4Group64Zero,
                                              WeightFormat::kInt4Group32Fp16Zero,
                                              WeightFormat::kInt4Group64Fp16Zero};

// As above: "bf16", "int8", "int4-g32", ...
std::string_view name_of(WeightFormat format);

// The format of that name, or nothing.
std::optional<WeightFormat> parse_weight_format(std::string_view name);

// int4 with zero points.
constexpr bool has_zero_points(WeightFormat format) {
    return format >= WeightFormat::kInt4Group32Zero && format <= WeightFormat::kInt4Group64Fp16Zero;
}

constexpr bool is_int4(WeightFormat format) {
    return (format >= WeightFormat::kInt4Group32 && format <= WeightFormat::kInt4Group64Fp16) ||
           has_zero_points(format);
}

constexpr bool has_fp16_scales(WeightFormat format) {
    return format == WeightFormat::kInt4Group32Fp16 || format == WeightFormat::kInt4Group64Fp16 ||
           format == WeightFormat::kInt4Group32Fp16Zero ||
           format == WeightFormat::kInt4Group64Fp16Zero;
}

// int4 and mxfp4: four bits an element, scales of 16 bits for groups along K. They are laid out
// alike (Int4Weight, and panels).
constexpr bool has_nibbles(WeightFormat format) {
    return is_int4(format) || format == WeightFormat::kMxfp4;
}

// Elements along K that share a scale. REQUIRES: has_nibbles(format).
constexpr size_t int4_group_size(WeightFormat format) {
    const bool is_64 =
        format == WeightFormat::kInt4Group64 || format == WeightFormat::kInt4Group64Fp16 ||
        format == WeightFormat::kInt4Group64Zero || format == WeightFormat::kInt4Group64Fp16Zero;
    return is_64 ? 64 : 32;
}

// The scale with these bits. REQUIRES: has_nibbles(format).
inline float int4_scale(WeightFormat format, uint16_t bits) {
    return has_fp16_scales(format) ? to_float(Fp16{bits}) : to_float(Bf16{bits});
}

// The e2m1 number with these four bits: sign, two of exponent, one of mantissa.
constexpr float from_e2m1(unsigned nibble) {
    constexpr std::array kMagnitudes = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
    const float magnitude = kMagnitudes[nibble & 7u];
    return (nibble & 8u) != 0 ? -magnitude : magnitude;
}

struct Int8Weight {
    Rows<const int8_t> values;     // [N, K]
    const float* scale = nullptr;  // [N]

    size_t num_outputs() const { return values.num_rows; }
    size_t depth() const { return values.num_cols; }
};

// int4, or mxfp4: has_nibbles(format).
struct Int4Weight {
    Rows<const uint8_t> values;  // [N, ceil(K / 2)]: k even in the low nibble, k odd in the high
    Rows<const uint16_t> scale;  // [N, ceil(K / group size)], bits as the format says
    size_t num_columns = 0;      // K
    WeightFormat format = WeightFormat::kInt4Group32;
    Rows<const int8_t> zero{};  // As scale; of formats with zero points alone.

    size_t num_outputs() const { return values.num_rows; }
    size_t depth() const { return num_columns; }
    // q[n, k], sign extended; of mxfp4 the same bits.
    int value(size_t n, size_t k) const {
        const unsigned nibble = (values.row(n)[k / 2] >> (k % 2 * 4)) & 0xfu;
        return static_cast<int>(nibble ^ 8u) - 8;
    }
    // That of the group that k belongs to: 0 without zero points.
    int zero_at(size_t n, size_t k) const {
        return has_zero_points(format) ? zero.row(n)[k / int4_group_size(format)] : 0;
    }
    // q[n, k] - zero, or e2m1[n, k].
    float number(size_t n, size_t k) const {
        const int q = value(n, k);
        return format == WeightFormat::kMxfp4 ? from_e2m1(static_cast<unsigned>(q))
                                              : static_cast<float>(q - zero_at(n, k));
    }
    // That of the group that k belongs to.
    float scale_at(size_t n, size_t k) const {
        return int4_scale(format, scale.row(n)[k / int4_group_size(format)]);
    }
};

// Rows and columns of a block with one scale.
inline constexpr size_t kFp8BlockEdge = 128;

constexpr size_t fp8_blocks(size_t extent) {
    return (extent + kFp8BlockEdge - 1) / kFp8BlockEdge;
}

struct Fp8Weight {
    Rows<const E4m3> values;  // [N, K], numbers
    Rows<const float> scale;  // [fp8_blocks(N), fp8_blocks(K)]

    size_t num_outputs() const { return values.num_rows; }
    size_t depth() const { return values.num_cols; }
    float scale_at(size_t n, size_t k) const {
        return scale.row(n / kFp8BlockEdge)[k / kFp8BlockEdge];
    }
};

// Whether every q is in [-7, 7], as in what afd-quantize writes.
bool values_in_range(const Int4Weight& weight);

}  // namespace afd::ops
