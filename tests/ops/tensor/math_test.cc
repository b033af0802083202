// SPDX-License-Identifier: Apache-2.0

#include "ops/tensor/math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "ops/cpu/kernels.h"
#include "ops/format/attention_batch.h"
#include "tests/ops/test_data.h"

namespace afd::ops {
namespace {

// Distance from the exact value in units of the float spacing there (at least the denormal one).
double ulps(float have, double want) {
    const float nearest = static_cast<float>(want);
    if (std::isinf(nearest)) return have == nearest ? 0 : 1e9;
    const float magnitude = std::max(std::fabs(nearest), std::numeric_limits<float>::min());
    const double spacing =
        static_cast<double>(std::nextafter(magnitude, INFINITY)) - static_cast<double>(magnitude);
    return std::fabs(static_cast<double>(have) - want) / spacing;
}

// Largest error of `ours` against `exact` over every 997th float of both signs.
template <typename Ours, typename Exact>
double largest_error(const Ours& ours, const Exact& exact, float from, float to) {
    double largest = 0;
    for (uint64_t bits = 0; bits < 0x7f800000u; bits += 997) {
        for (const uint32_t sign : {0u, 0x80000000u}) {
            const float x = std::bit_cast<float>(static_cast<uint32_t>(bits) | sign);
            if (x < from || x > to) continue;
            largest = std::max(largest, ulps(ours(x), exact(static_cast<double>(x))));
        }
    }
    return largest;
}

TEST(Math, ExpIsWithinTwoUlpOverTheWholeRange) {
    const auto ours = [](float x) { return exp(x); };
    EXPECT_LE(largest_error(
                  ours, [](double x) { return std::exp(x); }, -INFINITY, INFINITY),
              2.0);
}

TEST(Math, LogIsWithinTwoUlpOverTheWholeRange) {
    const auto ours = [](float x) { return log(x); };
    const float least = std::numeric_limits<float>::denorm_min();
    EXPECT_LE(largest_error(
                  ours, [](double x) { return std::log(x); }, least, INFINITY),
              2.0);
}

TEST(Math, SigmoidAndSiluAreWithinFourUlpOverTheWholeRange) {
    const auto sigmoid_exact = [](double x) { return 1.0 / (1.0 + std::exp(-x)); };
    const auto silu_exact = [](double x) { return x / (1.0 + std::exp(-x)); };
    const auto ours = [](float x) { return sigmoid(x); };
    const auto our_silu = [](float x) { return silu(x); };
    const float largest = std::numeric_limits<float>::max();
    EXPECT_LE(largest_error(ours, sigmoid_exact, -largest, largest), 4.0);
    // Below -86 e^x is near or under the least normal float, whose spacing x then multiplies.
    EXPECT_LE(largest_error(our_silu, silu_exact, -86.0f, largest), 4.0);
}

TEST(Math, SoftplusIsWithinFourUlpOverTheWholeRange) {
    const auto exact = [](double x) { return x > 40 ? x : std::log1p(std::exp(x)); };
    const auto ours = [](float x) { return softplus(x); };
    const float largest = std::numeric_limits<float>::max();
    EXPECT_LE(largest_error(ours, exact, -largest, largest), 4.0);
    EXPECT_TRUE(std::isnan(softplus(std::numeric_limits<float>::quiet_NaN())));
}

TEST(Math, SpecialValues) {
    const float infinity = std::numeric_limits<float>::infinity();
    const float nan = std::numeric_limits<float>::quiet_NaN();
    EXPECT_EQ(exp(0.0f), 1.0f);
    EXPECT_EQ(exp(-infinity), 0.0f);
    EXPECT_EQ(exp(infinity), infinity);
    EXPECT_TRUE(std::isnan(exp(nan)));
    EXPECT_EQ(log(1.0f), 0.0f);
    EXPECT_EQ(log(0.0f), -infinity);
    EXPECT_EQ(log(infinity), infinity);
    EXPECT_TRUE(std::isnan(log(-1.0f)));
    EXPECT_TRUE(std::isnan(log(nan)));
    EXPECT_EQ(sigmoid(0.0f), 0.5f);
    EXPECT_EQ(sigmoid(infinity), 1.0f);
    EXPECT_TRUE(std::isnan(silu(nan)));
}

// Goal: the row loops give the same bits in every numeric class, in vector bodies and scalar tails.
// Oracle: the scalar functions of ops/tensor/math.h, called one value at a time.
TEST(Math, RowLoopsOfEveryClassEqualTheScalarFunctions) {
    std::vector<float> gate;
    std::vector<float> up;
    for (uint32_t i = 0; i < 4099; ++i) {
        gate.push_back(std::bit_cast<float>(i * 1047551u));
        up.push_back(static_cast<float>(i % 17) - 8.0f);
    }
    for (const NumericClass numeric_class : supported_numeric_classes()) {
        std::vector<Bf16> h(gate.size());
        cpu::kernels(numeric_class).swiglu_row(gate.data(), up.data(), gate.size(), h.data());
        for (size_t i = 0; i < gate.size(); ++i) {
            const float g = to_float(from_float(gate[i]));
            const float want = silu(g) * to_float(from_float(up[i]));
            if (std::isnan(want)) {
                EXPECT_TRUE(std::isnan(to_float(h[i]))) << name_of(numeric_class) << " " << gate[i];
            } else {
                ASSERT_EQ(h[i].bits, from_float(want).bits)
                    << name_of(numeric_class) << " " << gate[i];
            }
        }
    }
}

TEST(Math, SoftmaxStepsOfEveryClassHaveThePortableBits) {
    const test::RandomMatrix random(8, kAttentionBlock, 3, 4.0f);
    for (const NumericClass numeric_class : supported_numeric_classes()) {
        float state[2][3] = {{-INFINITY, 0, 0}, {-INFINITY, 0, 0}};
        for (size_t block = 0; block < random.num_rows; ++block) {
            const size_t count = block + 1 == random.num_rows ? 37 : kAttentionBlock;
            Bf16 p[2][kAttentionBlock];
            const cpu::Kernels* tables[2] = {&cpu::portable_kernels(),
                                             &cpu::kernels(numeric_class)};
            for (size_t i = 0; i < 2; ++i) {
                float scores[kAttentionBlock];
                for (size_t j = 0; j < kAttentionBlock; ++j) {
                    scores[j] = to_float(random.rows().row(block)[j]);
                }
                tables[i]->softmax_step(
                    scores, count, &state[i][0], &state[i][1], &state[i][2], p[i]);
            }
            ASSERT_EQ(test::bits_of(std::span<const float>(state[0])),
                      test::bits_of(std::span<const float>(state[1])));
            ASSERT_EQ(test::bits_of(std::span<const Bf16>(p[0])),
                      test::bits_of(std::span<const Bf16>(p[1])));
            for (size_t j = count; j < kAttentionBlock; ++j) ASSERT_EQ(p[1][j].bits, 0);
        }
    }
}

}  // namespace
}  // namespace afd::ops
