// SPDX-License-Identifier: Apache-2.0

// Grouped experts in every numeric class and every weight format: against the reference, and
// promise 1.

#include <gtest/gtest.h>

#include <cmath>

#include "ops/experts/grouped_ffn.h"
#include "ops/reference/expert_ffn.h"
#include "tests/ops/linear/quantised_weights.h"
#include "tests/ops/test_data.h"

namespace afd::ops {
namespace {

using test::RandomFp8;
using test::RandomInt4;
using test::RandomInt8;
using test::RandomMatrix;
using test::Scales;
AFD_FOR_EVERY_CLASS(ExpertFormats);

// More than one piece of an int4 panel, incomplete groups, quads and panels.
constexpr size_t kHidden = 541;
constexpr size_t kIntermediate = 70;

struct Bf16Expert {
    RandomMatrix gate{kIntermediate, kHidden, 1, 0.05f};
    RandomMatrix up{kIntermediate, kHidden, 2, 0.05f};
    RandomMatrix down{kHidden, kIntermediate, 3, 0.05f};

    PackedExpert pack(NumericClass numeric_class) const {
        return pack_expert(gate.rows(), up.rows(), down.rows(), numeric_class);
    }
    reference::Matrix expected(const reference::Matrix& x) const {
        return reference::expert_ffn(
            x, {gate.rows(), up.rows(), down.rows()}, reference::Rounding::kBf16);
    }
};

struct Int8Expert {
    RandomInt8 gate{kIntermediate, kHidden, 1};
    RandomInt8 up{kIntermediate, kHidden, 2};
    RandomInt8 down{kHidden, kIntermediate, 3};

    PackedExpert pack(NumericClass numeric_class) const {
        return pack_expert(gate.weight(), up.weight(), down.weight(), numeric_class);
    }
    reference::Matrix expected(const reference::Matrix& x) const {
        return reference::expert_ffn(
            x, {gate.weight(), up.weight(), down.weight()}, reference::Rounding::kBf16);
    }
};

struct Fp8Expert {
    RandomFp8 gate{kIntermediate, kHidden, 1};
    RandomFp8 up{kIntermediate, kHidden, 2};
    RandomFp8 down{kHidden, kIntermediate, 3};

    PackedExpert pack(NumericClass numeric_class) const {
        return pack_expert(gate.weight(), up.weight(), down.weight(), numeric_class);
    }
    reference::Matrix expected(const reference::Matrix& x) const {
        return reference::expert_ffn(
            x, {gate.weight(), up.weight(), down.weight()}, reference::Rounding::kBf16);
    }
};

struct Int4Expert {
    WeightFormat format;
    Scales scales = Scales::kShort;
    RandomInt4 gate{kIntermediate, kHidden, format, 1, scales};
    RandomInt4 up{kIntermediate, kHidden, format, 2, scales};
    RandomInt4 down{kHidden, kIntermediate, format, 3, scales};

    PackedExpert pack(NumericClass numeric_class) const {
        return pack_expert(gate.weight(), up.weight(), down.weight(), numeric_class);
    }
    reference::Matrix expected(const reference::Matrix& x) const {
        const std::vector<Bf16> g = gate.dequantised();
        const std::vector<Bf16> u = up.dequantised();
        const std::vector<Bf16> d = down.dequantised();
        return reference::expert_ffn(x,
                                     {make_rows(g.data(), kIntermediate, kHidden),
                                      make_rows(u.data(), kIntermediate, kHidden),
                                      make_rows(d.data(), kHidden, kIntermediate)},
                                     reference::Rounding::kBf16);
    }
};

ExpertTable table_of(PackedExpert expert) {
    ExpertTable table(1, kHidden);
    table.set(0, std::move(expert));
    return table;
}

RandomMatrix run(const ExpertTable& table, const RandomMatrix& x, Parallel& parallel) {
    RandomMatrix y(x.num_rows, kHidden, 1);
    const ExpertGroup group{0, static_cast<int64_t>(x.num_rows)};
    const Workspace workspace(grouped_ffn_workspace_bytes(table, x.num_rows, 1));
    const Result<> result = grouped_ffn(
        {.experts = &table, .groups = {&group, 1}, .x = x.rows(), .y = y.mutable_rows()},
        workspace.bytes(),
        parallel);
    EXPECT_TRUE(result.ok());
    return y;
}

// Bound: a sum near a rounding boundary of gate, up, h or y may fall to the other neighbour (2^-8),
// and an int8 h to the next integer (1/127 of the row's largest). Such steps are rare and each
// moves y by a small part of Σ|h·w|, which is below 16 · max|y|; a wrong scale, group or column
// misses by far more.
template <typename Expert>
void expect_the_reference(const Expert& expert, NumericClass numeric_class) {
    SerialParallel serial;
    for (const size_t num_rows : {1u, 3u, 8u, 29u}) {
        const RandomMatrix x(num_rows, kHidden, 9);
        const RandomMatrix y = run(table_of(expert.pack(numeric_class)), x, serial);
        const reference::Matrix want = expert.expected(reference::widen(x.rows()));
        for (size_t r = 0; r < num_rows; ++r) {
            double largest = 0;
            for (size_t c = 0; c < kHidden; ++c) {
                largest = std::max(largest, std::fabs(want.at(r, c)));
            }
            ASSERT_GT(largest, 0.0);
            for (size_t c = 0; c < kHidden; ++c) {
                const double have = static_cast<double>(to_float(y.rows().row(r)[c]));
                ASSERT_NEAR(have, want.at(r, c), 4.0 / 256.0 * largest) << r << " " << c;
            }
        }
    }
}

TEST_P(ExpertFormats, MatchTheReference) {
    expect_the_reference(Bf16Expert{}, GetParam());
    expect_the_reference(Int8Expert{}, GetParam());
    expect_the_reference(Fp8Expert{}, GetParam());
    expect_the_reference(Int4Expert{WeightFormat::kMxfp4}, GetParam());
    for (const Scales scales : {Scales::kAny, Scales::kShort}) {
        expect_the_reference(Int4Expert{WeightFormat::kInt4Group32, scales}, GetParam());
        expect_the_reference(Int4Expert{WeightFormat::kInt4Group64, scales}, GetParam());
        expect_the_reference(Int4Expert{WeightFormat::kInt4Group32Fp16, scales}, GetParam());
        expect_the_reference(Int4Expert{WeightFormat::kInt4Group64Fp16Zero, scales}, GetParam());
    }
}

void expect_row_invariant(PackedExpert expert) {
    const ExpertTable table = table_of(std::move(expert));
    const RandomMatrix x(24, kHidden, 10);
    test::expect_row_invariant(24, [&](std::span<const size_t> rows, Parallel& parallel) {
        const RandomMatrix y = run(table, x.pick(rows), parallel);
        return test::bits_of(std::span<const Bf16>(y.values));
    });
}

// Promise 1: each row alone, in batches of 1 to 512 rows in any order, on 1 and 2 threads.
TEST_P(ExpertFormats, Bf16IsRowInvariant) {
    expect_row_invariant(Bf16Expert{}.pack(GetParam()));
}

TEST_P(ExpertFormats, Int8IsRowInvariant) {
    expect_row_invariant(Int8Expert{}.pack(GetParam()));
}

TEST_P(ExpertFormats, Fp8IsRowInvariant) {
    expect_row_invariant(Fp8Expert{}.pack(GetParam()));
}

TEST_P(ExpertFormats, Int4Group32IsRowInvariant) {
    expect_row_invariant(Int4Expert{WeightFormat::kInt4Group32}.pack(GetParam()));
}

TEST_P(ExpertFormats, Int4Group64IsRowInvariant) {
    expect_row_invariant(Int4Expert{WeightFormat::kInt4Group64}.pack(GetParam()));
}

TEST_P(ExpertFormats, Int4WithFp16ScalesIsRowInvariant) {
    for (const Scales scales : {Scales::kAny, Scales::kShort}) {
        expect_row_invariant(Int4Expert{WeightFormat::kInt4Group32Fp16, scales}.pack(GetParam()));
    }
}

TEST_P(ExpertFormats, Int4WithZeroPointsIsRowInvariant) {
    expect_row_invariant(Int4Expert{WeightFormat::kInt4Group32Zero, Scales::kAny}.pack(GetParam()));
    expect_row_invariant(
        Int4Expert{WeightFormat::kInt4Group64Fp16Zero, Scales::kAny}.pack(GetParam()));
}

TEST_P(ExpertFormats, Mxfp4IsRowInvariant) {
    expect_row_invariant(Int4Expert{WeightFormat::kMxfp4}.pack(GetParam()));
}

TEST_P(ExpertFormats, Int4OfAnyScaleIsRowInvariant) {
    expect_row_invariant(Int4Expert{WeightFormat::kInt4Group32, Scales::kAny}.pack(GetParam()));
}

// Goal: the class avx512 is avx2 on wider registers. Oracle: avx2, bit by bit.
TEST(ExpertFormatsOfClasses, Avx512HasTheBitsOfAvx2) {
    if (!supported(NumericClass::kAvx512)) {
        EXPECT_FALSE(supported(NumericClass::kAvx512Bf16));
        return;
    }
    SerialParallel serial;
    const RandomMatrix x(13, kHidden, 11);
    const auto bits = [&](const auto& expert, NumericClass numeric_class) {
        return run(table_of(expert.pack(numeric_class)), x, serial).values;
    };
    EXPECT_EQ(bits(Bf16Expert{}, NumericClass::kAvx512), bits(Bf16Expert{}, NumericClass::kAvx2));
    const Int4Expert int4{WeightFormat::kInt4Group32};
    EXPECT_EQ(bits(int4, NumericClass::kAvx512), bits(int4, NumericClass::kAvx2));
    const Int4Expert zero{WeightFormat::kInt4Group32Zero};
    EXPECT_EQ(bits(zero, NumericClass::kAvx512), bits(zero, NumericClass::kAvx2));
    EXPECT_EQ(bits(Fp8Expert{}, NumericClass::kAvx512), bits(Fp8Expert{}, NumericClass::kAvx2));
}

// Goal: integer sums know no class. Oracle: portable, bit by bit.
TEST_P(ExpertFormats, Int8HasTheSameBitsInEveryClass) {
    SerialParallel serial;
    const RandomMatrix x(13, kHidden, 12);
    const Int8Expert expert;
    EXPECT_EQ(run(table_of(expert.pack(GetParam())), x, serial).values,
              run(table_of(expert.pack(NumericClass::kPortable)), x, serial).values);
}

}  // namespace
}  // namespace afd::ops
