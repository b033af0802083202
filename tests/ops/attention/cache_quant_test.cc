// SPDX-License-Identifier: Apache-2.0

#include "ops/attention/cache_quant.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "ops/operators/mla_v3/cache_format.h"
#include "tests/ops/random_values.h"

namespace afd::ops {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(CacheQuant, RoundsHalfToEvenAndSaturatesWithGivenScales) {
    const std::vector<float> v{0.5f,
                               1.5f,
                               2.5f,
                               -0.5f,
                               -1.5f,
                               63.6f,
                               64.0f,
                               -64.0f,
                               -64.5f,
                               1e30f,
                               kNaN,
                               kInfinity,
                               -kInfinity,
                               0.0f};
    const std::vector<int> halves{0, 2, 2, 0, -2, 64, 64, -64, -64, 127, 0, 127, -128, 0};
    std::vector<int8_t> q(v.size(), 99);
    const float one = 1.0f;
    quantise_with_scales(v.data(), v.size(), &one, 0, q.data());
    for (size_t i = 0; i < v.size(); ++i) EXPECT_EQ(q[i], halves[i]) << v[i];
    // A scale each: 0.5 · 1 rounds to 0, 1.5 · 2 is 3, and so on.
    const std::vector<float> scales{1, 2, 3, -4};
    quantise_with_scales(v.data(), 4, scales.data(), 1, q.data());
    EXPECT_EQ(q[0], 0);
    EXPECT_EQ(q[1], 3);
    EXPECT_EQ(q[2], 8);  // 7.5, half to even.
    EXPECT_EQ(q[3], 2);
}

// Oracle: the formula in plain double steps rounded to float where the header has an operation.
TEST(CacheQuant, ClipsATileToAlphaOfItsLargestValue) {
    test::RandomValues random(3, 2.0f);
    for (const float alpha : {1.0f, 0.75f, 0.1f, 1.5f}) {
        for (const size_t count : {1u, 7u, 128u}) {
            std::vector<float> v(count);
            for (float& value : v) value = random.next();
            float largest = 0;
            for (const float value : v) largest = std::max(largest, std::fabs(value));
            std::vector<int8_t> q(count, 99);
            const float scale = quantise_tile(v.data(), count, alpha, q.data());
            EXPECT_EQ(scale, alpha * largest / 127.0f);
            for (size_t i = 0; i < count; ++i) {
                const float clipped = std::clamp(v[i], -alpha * largest, alpha * largest);
                EXPECT_EQ(q[i], std::clamp(std::nearbyint(clipped / scale), -127.0f, 127.0f));
            }
        }
    }
}

TEST(CacheQuant, GivesZerosForATileOfZerosOrNotOfNumbers) {
    for (const float value : {0.0f, 1e-45f, kNaN, kInfinity, -kInfinity}) {
        const std::vector<float> v{1e-45f, 0.0f, value};
        std::vector<int8_t> q(3, 99);
        const float scale = quantise_tile(v.data(), 3, 1.0f, q.data());
        EXPECT_EQ(std::isnan(scale), !std::isfinite(value)) << value;
        if (std::isfinite(value)) {
            EXPECT_EQ(scale, 0.0f);
        }
        EXPECT_EQ(q, std::vector<int8_t>(3, 0)) << value;
    }
}

TEST(CacheFormat, ATileRowOfTheSeedsSizesHas656Bytes) {
    const TileRow row{.latent = 512, .rope = 64, .tile_size = 128};
    EXPECT_EQ(row.rope_offset(), 512U);
    EXPECT_EQ(row.scales_offset(), 640U);
    EXPECT_EQ(row.bytes(), 656U);
}

TEST(CacheFormat, NamesOfCacheModesGoBothWays) {
    for (const CacheMode mode : {CacheMode::kPaBsnd,
                                 CacheMode::kPaNz,
                                 CacheMode::kPaBlkBsnd,
                                 CacheMode::kPaBlkNz,
                                 CacheMode::kBsnd,
                                 CacheMode::kTnd}) {
        EXPECT_EQ(parse_cache_mode(name_of(mode)), mode);
    }
    EXPECT_FALSE(parse_cache_mode("PA").has_value());
    EXPECT_FALSE(parse_cache_mode("").has_value());
}

// Every byte of a cache belongs to exactly one byte of one row, in either layout.
TEST(CacheFormat, RowsTileTheCache) {
    const std::vector<std::byte> memory(3 * 5 * 96);
    for (const CacheMode mode : {CacheMode::kPaBsnd, CacheMode::kPaNz}) {
        const CacheRows rows = CacheRows::of(
            mode, make_tensor<const void>(memory.data(), DType::kInt8, {3, 5, 1, 96}));
        ASSERT_EQ(rows.num_rows, 15U);
        std::vector<int> hits(memory.size());
        for (size_t row = 0; row < 15; ++row) {
            for (size_t byte = 0; byte < 96; ++byte) ++hits[rows.offset(row, byte)];
        }
        EXPECT_EQ(hits, std::vector<int>(memory.size(), 1));
    }
}

}  // namespace
}  // namespace afd::ops
