// SPDX-License-Identifier: Apache-2.0

// Products with int8, int4, mxfp4 and fp8 weights in every numeric class.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ops/linear/linear.h"
#include "ops/reference/quantise.h"
#include "tests/ops/linear/quantised_weights.h"
#include "tests/ops/test_data.h"

namespace afd::ops {
namespace {

using test::kInt4Formats;
using test::RandomFp8;
using test::RandomInt4;
using test::RandomInt8;
using test::RandomMatrix;
using test::Scales;
AFD_FOR_EVERY_CLASS(QuantisedLinear);

std::vector<Bf16> product(const LinearInput& x, const PackedLinear& weight, Parallel& parallel) {
    std::vector<Bf16> y(x.rows.num_rows * weight.num_outputs());
    linear(x, weight, make_rows(y.data(), x.rows.num_rows, weight.num_outputs()), parallel);
    return y;
}

std::vector<Bf16> int8_product(const RandomMatrix& x,
                               const PackedLinear& weight,
                               Parallel& parallel) {
    const Workspace workspace(quantised_input_bytes(x.num_rows, x.num_cols));
    return product(quantised_input(x.rows(), workspace.bytes(), parallel), weight, parallel);
}

TEST(WeightFormat, NamesParseBack) {
    for (const WeightFormat format : kWeightFormats) {
        EXPECT_EQ(parse_weight_format(name_of(format)), format);
    }
    EXPECT_EQ(parse_weight_format("int4"), std::nullopt);
}

TEST(WeightFormat, FindsTheInt4ValueThatAfdQuantizeDoesNotWrite) {
    RandomInt4 w(3, 7, WeightFormat::kInt4Group32, 1);
    for (uint8_t& byte : w.values) byte = 0x79;
    EXPECT_TRUE(values_in_range(w.weight()));
    w.values[5] = 0x81;  // Row 1, k = 2 and 3.
    EXPECT_FALSE(values_in_range(w.weight()));
}

// Oracle: reference quantisation of the row, 64-bit sums, the two products in the stated order.
TEST_P(QuantisedLinear, Int8IsTheExactSumTimesRowAndColumnScale) {
    SerialParallel serial;
    for (const size_t num_rows : {1u, 2u, 3u, 5u, 8u, 12u, 13u, 29u}) {
        for (const size_t depth : {1u, 4u, 63u, 64u, 258u}) {
            const size_t outputs = 77;
            const RandomInt8 w(outputs, depth, 3);
            const RandomMatrix x(num_rows, depth, 4);
            const std::vector<Bf16> y =
                int8_product(x, PackedLinear::pack(w.weight(), GetParam()), serial);
            std::vector<int8_t> q(depth);
            for (size_t i = 0; i < num_rows; ++i) {
                const float row_scale = reference::quantise_row(
                    DType::kBf16, x.rows().row(i), nullptr, depth, q.data());
                for (size_t n = 0; n < outputs; ++n) {
                    int64_t sum = 0;
                    for (size_t k = 0; k < depth; ++k) sum += q[k] * w.values[n * depth + k];
                    const float want = static_cast<float>(sum) * row_scale * w.scale[n];
                    ASSERT_EQ(y[i * outputs + n], from_float(want)) << i << " " << n;
                }
            }
        }
    }
}

// The largest sum that the depth allows, and the smallest: 131071 · (∓127)·128.
TEST_P(QuantisedLinear, Int8HoldsTheLargestSums) {
    SerialParallel serial;
    for (const int value : {-128, 127}) {
        RandomInt8 w(1, kInt8DepthMax, 1);
        std::fill(w.values.begin(), w.values.end(), static_cast<int8_t>(value));
        w.scale = {1.0f};
        RandomMatrix x(1, kInt8DepthMax, 1);
        std::fill(x.values.begin(), x.values.end(), from_float(-127.0f));
        const int64_t sum = int64_t{kInt8DepthMax} * -127 * value;
        EXPECT_EQ(int8_product(x, PackedLinear::pack(w.weight(), GetParam()), serial)[0],
                  from_float(static_cast<float>(sum)));
    }
}

// Rows that came quantised, as seeds and windows hand them over; y in fp32, so that the order of
// the two products shows. -128 is the one value that our own quantisation never gives.
TEST_P(QuantisedLinear, Int8RowsAloneGiveTheExactSumTimesRowAndColumnScale) {
    SerialParallel serial;
    for (const size_t num_rows : {0u, 1u, 3u, 17u}) {
        for (const size_t depth : {1u, 63u, 257u}) {
            const size_t outputs = 33;
            const RandomInt8 w(outputs, depth, 5);
            const RandomInt8 x(num_rows, depth, 6);
            std::vector<int8_t> values(x.values);
            if (!values.empty()) values[0] = -128;
            std::vector<float> y(num_rows * outputs);
            linear_f32(
                Int8Rows{make_rows<const int8_t>(values.data(), num_rows, depth), x.scale.data()},
                PackedLinear::pack(w.weight(), GetParam()),
                make_rows(y.data(), num_rows, outputs),
                serial);
            for (size_t i = 0; i < num_rows * outputs; ++i) {
                const size_t row = i / outputs;
                const size_t n = i % outputs;
                int64_t sum = 0;
                for (size_t k = 0; k < depth; ++k) {
                    sum += values[row * depth + k] * w.values[n * depth + k];
                }
                ASSERT_EQ(y[i], static_cast<float>(sum) * x.scale[row] * w.scale[n])
                    << row << " " << n;
            }
        }
    }
}

constexpr size_t kRowCounts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 200};
constexpr size_t kDepths[] = {1, 2, 31, 32, 64, 77, 96, 515, 1030};
constexpr size_t kOutputs = 77;

std::vector<float> product_f32(Rows<const Bf16> x, Rows<const Bf16> w, NumericClass numeric_class) {
    SerialParallel serial;
    std::vector<float> y(x.num_rows * w.num_rows);
    linear_f32(x,
               PackedLinear::pack(w, numeric_class),
               make_rows(y.data(), x.num_rows, w.num_rows),
               serial);
    return y;
}

// What the class avx512-bf16 says of int4 and mxfp4 weights (ops/format/numeric_class.h), by its
// bf16 products of single groups.
std::vector<float> product_by_groups(const RandomMatrix& x, const RandomInt4& w) {
    const size_t group = int4_group_size(w.format);
    std::vector<float> sums(x.num_rows * w.num_outputs);
    for (size_t first = 0; first < w.depth; first += group) {
        const size_t count = std::min(group, w.depth - first);
        std::vector<Bf16> inside(w.num_outputs * count);
        std::vector<float> outside(w.num_outputs);
        for (size_t n = 0; n < w.num_outputs; ++n) {
            const float scale = w.weight().scale_at(n, first);
            int exponent = 0;
            const float five_bits = std::ldexp(std::frexp(scale, &exponent), 5);
            const bool is_short = five_bits == std::floor(five_bits);
            outside[n] = is_short ? scale : 1.0f;
            for (size_t k = 0; k < count; ++k) {
                const float q = w.weight().number(n, first + k);
                inside[n * count + k] = from_float(is_short ? q : q * scale);
            }
        }
        const std::vector<float> part =
            product_f32(x.rows().columns(first, count),
                        make_rows<const Bf16>(inside.data(), w.num_outputs, count),
                        NumericClass::kAvx512Bf16);
        for (size_t i = 0; i < sums.size(); ++i) {
            sums[i] = std::fma(outside[i % w.num_outputs], part[i], sums[i]);
        }
    }
    return sums;
}

std::vector<Bf16> rounded(const std::vector<float>& sums) {
    std::vector<Bf16> y(sums.size());
    std::ranges::transform(sums, y.begin(), from_float);
    return y;
}

// Oracle: in the class avx512-bf16, without zero points, its bf16 products of single groups; else
// the bf16 product with the dequantised matrix. Bit by bit.
void expect_int4_products_of_class(const RandomInt4& w, NumericClass numeric_class) {
    SerialParallel serial;
    const bool is_by_groups =
        numeric_class == NumericClass::kAvx512Bf16 && !has_zero_points(w.format);
    const std::vector<Bf16> plain = w.dequantised();
    const PackedLinear dequantised = PackedLinear::pack(
        make_rows<const Bf16>(plain.data(), w.num_outputs, w.depth), numeric_class);
    const PackedLinear packed = PackedLinear::pack(w.weight(), numeric_class);
    for (const size_t num_rows : kRowCounts) {
        const RandomMatrix x(num_rows, w.depth, 6);
        ASSERT_EQ(product(x.rows(), packed, serial),
                  is_by_groups ? rounded(product_by_groups(x, w))
                               : product(x.rows(), dequantised, serial))
            << num_rows << " rows of " << w.depth << ", " << name_of(w.format);
    }
}

TEST_P(QuantisedLinear, Int4IsTheProductThatItsClassSays) {
    for (const WeightFormat format : kInt4Formats) {
        for (const size_t depth : kDepths) {
            for (const Scales scales : {Scales::kAny, Scales::kShort}) {
                // With zero points short ones are as any.
                if (has_zero_points(format) && scales == Scales::kShort) continue;
                const RandomInt4 w(kOutputs, depth, format, 5, scales);
                ASSERT_NO_FATAL_FAILURE(expect_int4_products_of_class(w, GetParam()));
            }
        }
    }
}

// Oracle: as above; the expanded matrix is mxfp4 exactly. Bit by bit, in fp32; with scales that
// make subnormals and infinities, too.
TEST_P(QuantisedLinear, Mxfp4IsTheProductThatItsClassSays) {
    constexpr int kOrdinary = 0;
    for (const int exponent : {kOrdinary, -127, 124}) {
        for (const size_t num_rows : kRowCounts) {
            for (const size_t depth : kDepths) {
                RandomInt4 w(kOutputs, depth, WeightFormat::kMxfp4, 5);
                for (size_t i = 0; exponent != kOrdinary && i < w.scale.size(); i += 3) {
                    const int more = static_cast<int>(i / 3 % 4);
                    w.scale[i] = from_float(std::ldexp(1.0f, exponent + more)).bits;
                }
                const RandomMatrix x(num_rows, depth, 6);
                const std::vector<Bf16> plain = w.dequantised();
                SerialParallel serial;
                std::vector<float> have(num_rows * kOutputs);
                linear_f32(x.rows(),
                           PackedLinear::pack(w.weight(), GetParam()),
                           make_rows(have.data(), num_rows, kOutputs),
                           serial);
                const std::vector<float> want =
                    GetParam() == NumericClass::kAvx512Bf16
                        ? product_by_groups(x, w)
                        : product_f32(x.rows(),
                                      make_rows<const Bf16>(plain.data(), kOutputs, depth),
                                      GetParam());
                ASSERT_EQ(test::bits_of(std::span<const float>(have)),
                          test::bits_of(std::span<const float>(want)))
                    << num_rows << " rows of " << depth;
            }
        }
    }
}

// The same with scales that make subnormals and infinities, which quicker ways to round them would
// get wrong.
TEST_P(QuantisedLinear, Int4OfTinyAndHugeScalesIsTheProductThatItsClassSays) {
    for (const WeightFormat format : {WeightFormat::kInt4Group32, WeightFormat::kInt4Group32Zero}) {
        for (const int exponent : {-130, -127, 105, 124}) {
            SCOPED_TRACE("2^" + std::to_string(exponent));
            RandomInt4 w(kOutputs, 259, format, 8);
            for (size_t i = 0; i < w.scale.size(); i += 3) {
                const float significand = i % 2 == 0 ? 1.28125f : -1.6875f;
                w.scale[i] = from_float(std::ldexp(significand, exponent)).bits;
            }
            ASSERT_NO_FATAL_FAILURE(expect_int4_products_of_class(w, GetParam()));
        }
    }
}

// Oracle: the fp32 product with the dequantised matrix; both differ from the exact sum by at most
// depth roundings of Σ|x·w|.
TEST_P(QuantisedLinear, Int4IsTheProductOfTheDequantisedMatrix) {
    SerialParallel serial;
    constexpr size_t kDepth = 515;
    for (const Scales scales : {Scales::kAny, Scales::kShort}) {
        const RandomInt4 w(kOutputs, kDepth, WeightFormat::kInt4Group32, 5, scales);
        const RandomMatrix x(3, kDepth, 6);
        std::vector<float> have(3 * kOutputs);
        linear_f32(x.rows(),
                   PackedLinear::pack(w.weight(), GetParam()),
                   make_rows(have.data(), 3, kOutputs),
                   serial);
        const std::vector<Bf16> plain = w.dequantised();
        for (size_t i = 0; i < have.size(); ++i) {
            double sum = 0;
            double magnitude = 0;
            for (size_t k = 0; k < kDepth; ++k) {
                const double term = double{to_float(x.rows().row(i / kOutputs)[k])} *
                                    double{to_float(plain[i % kOutputs * kDepth + k])};
                sum += term;
                magnitude += std::fabs(term);
            }
            ASSERT_NEAR(double{have[i]}, sum, kDepth * 0x1p-24 * magnitude) << i;
        }
    }
}

// What the numeric class says of fp8 weights (ops/format/numeric_class.h), by its bf16 products of
// single blocks.
std::vector<float> product_by_blocks(const RandomMatrix& x,
                                     const RandomFp8& w,
                                     NumericClass numeric_class) {
    std::vector<float> sums(x.num_rows * w.num_outputs);
    for (size_t first = 0; first < w.depth; first += 128) {
        const size_t count = std::min<size_t>(128, w.depth - first);
        std::vector<Bf16> values(w.num_outputs * count);
        for (size_t i = 0; i < values.size(); ++i) {
            values[i] = from_float(to_float(w.values[i / count * w.depth + first + i % count]));
        }
        const std::vector<float> part =
            product_f32(x.rows().columns(first, count),
                        make_rows<const Bf16>(values.data(), w.num_outputs, count),
                        numeric_class);
        const size_t blocks_a_row = (w.depth + 127) / 128;
        for (size_t i = 0; i < sums.size(); ++i) {
            const float scale = w.scale[i % w.num_outputs / 128 * blocks_a_row + first / 128];
            const float product = scale * part[i];
            sums[i] = numeric_class == NumericClass::kPortable ? sums[i] + product
                                                               : std::fma(scale, part[i], sums[i]);
        }
    }
    return sums;
}

// An expert of DeepSeek-V3.
TEST(WeightFormat, Fp8TakesHalfOfBf16) {
    PackedShape shape{.num_outputs = 4096, .depth = 7168, .is_gate_up = true};
    const size_t bf16 = shape.size_bytes();
    shape.format = WeightFormat::kFp8Block128;
    EXPECT_LE(shape.size_bytes(), bf16 / 2 + bf16 / 256);
}

constexpr size_t kFp8Depths[] = {1, 3, 4, 127, 128, 130, 257, 515};

std::vector<float> fp8_product(const RandomMatrix& x,
                               const RandomFp8& w,
                               NumericClass numeric_class) {
    SerialParallel serial;
    std::vector<float> y(x.num_rows * w.num_outputs);
    linear_f32(x.rows(),
               PackedLinear::pack(w.weight(), numeric_class),
               make_rows(y.data(), x.num_rows, w.num_outputs),
               serial);
    return y;
}

// Oracle: the class's bf16 products of single blocks. Bit by bit. More outputs than a block has
// rows, panels and halves of panels that are not full.
TEST_P(QuantisedLinear, Fp8IsTheProductThatItsClassSays) {
    for (const size_t num_rows : kRowCounts) {
        for (const size_t depth : kFp8Depths) {
            const RandomFp8 w(num_rows % 2 == 0 ? 139 : 300, depth, 5);
            const RandomMatrix x(num_rows, depth, 6);
            ASSERT_EQ(fp8_product(x, w, GetParam()), product_by_blocks(x, w, GetParam()))
                << num_rows << " rows of " << depth;
        }
    }
}

// Oracle: the sum in double of x · value · scale; each product of a block and each block adds one
// rounding of Σ|x·w|, and so does the scale.
TEST_P(QuantisedLinear, Fp8IsTheProductOfValuesAndScales) {
    constexpr size_t kDepth = 515;
    const RandomFp8 w(300, kDepth, 7);
    const RandomMatrix x(3, kDepth, 8);
    const std::vector<float> have = fp8_product(x, w, GetParam());
    for (size_t i = 0; i < have.size(); ++i) {
        const size_t n = i % 300;
        double sum = 0;
        double magnitude = 0;
        for (size_t k = 0; k < kDepth; ++k) {
            const double term = double{to_float(x.rows().row(i / 300)[k])} *
                                double{to_float(w.values[n * kDepth + k])} *
                                double{w.scale[n / 128 * 5 + k / 128]};
            sum += term;
            magnitude += std::fabs(term);
        }
        ASSERT_NEAR(double{have[i]}, sum, (kDepth + 6) * 0x1p-24 * magnitude) << i;
    }
}

TEST_P(QuantisedLinear, IsRowInvariant) {
    const RandomMatrix x(32, 301, 7);
    const RandomInt8 int8(203, 301, 8);
    const RandomInt4 int4(203, 301, WeightFormat::kInt4Group32, 9);
    const RandomInt4 int4_fp16(203, 301, WeightFormat::kInt4Group64Fp16, 10);
    const RandomInt4 int4_zero(203, 301, WeightFormat::kInt4Group32Zero, 13);
    const RandomFp8 fp8(203, 301, 11);
    const RandomInt4 mxfp4(203, 301, WeightFormat::kMxfp4, 12);
    for (const auto& weight : {PackedLinear::pack(int8.weight(), GetParam()),
                               PackedLinear::pack(int4.weight(), GetParam()),
                               PackedLinear::pack(int4_fp16.weight(), GetParam()),
                               PackedLinear::pack(int4_zero.weight(), GetParam()),
                               PackedLinear::pack(fp8.weight(), GetParam()),
                               PackedLinear::pack(mxfp4.weight(), GetParam())}) {
        test::expect_row_invariant(32, [&](std::span<const size_t> rows, Parallel& parallel) {
            const std::vector<Bf16> y = int8_product(x.pick(rows), weight, parallel);
            return test::bits_of(std::span<const Bf16>(y));
        });
    }
}

// Goal: what is written to a file and mapped again is the same matrix, without a copy.
TEST_P(QuantisedLinear, AViewOfTheBytesIsTheSameMatrix) {
    SerialParallel serial;
    const RandomMatrix x(3, 100, 10);
    const RandomMatrix bf16(70, 100, 11);
    const RandomInt8 int8(70, 100, 12);
    const RandomInt4 int4(70, 100, WeightFormat::kInt4Group64, 13);
    const RandomInt4 int4_zero(70, 100, WeightFormat::kInt4Group64Fp16Zero, 16);
    const RandomFp8 fp8(70, 100, 14);
    const RandomInt4 mxfp4(70, 100, WeightFormat::kMxfp4, 15);
    for (const auto& weight : {PackedLinear::pack(bf16.rows(), GetParam()),
                               PackedLinear::pack(int8.weight(), GetParam()),
                               PackedLinear::pack(int4.weight(), GetParam()),
                               PackedLinear::pack(int4_zero.weight(), GetParam()),
                               PackedLinear::pack(fp8.weight(), GetParam()),
                               PackedLinear::pack(mxfp4.weight(), GetParam())}) {
        const PackedShape shape = weight.shape();
        Workspace mapped(shape.size_bytes());
        ASSERT_EQ(weight.bytes().size(), shape.size_bytes());
        std::ranges::copy(weight.bytes(), mapped.bytes().begin());
        const PackedLinear view =
            PackedLinear::view(shape, mapped.bytes().first(shape.size_bytes()));
        EXPECT_EQ(view.bytes().data(), mapped.bytes().data());
        EXPECT_EQ(int8_product(x, view, serial), int8_product(x, weight, serial));
    }
}

TEST(QuantisedLinearDeath, RefusesWhatItCannotUse) {
    SerialParallel serial;
    const RandomInt8 w(4, 8, 1);
    const PackedLinear packed = PackedLinear::pack(w.weight(), NumericClass::kPortable);
    const RandomMatrix x(1, 8, 1);
    EXPECT_DEATH(product(x.rows(), packed, serial), "were not quantised");
    EXPECT_DEATH(PackedLinear::view(packed.shape(), packed.bytes().subspan(64)),
                 "bytes at .* for a packed matrix of");
}

}  // namespace
}  // namespace afd::ops
