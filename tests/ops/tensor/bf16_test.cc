// SPDX-License-Identifier: Apache-2.0

#include "ops/tensor/bf16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace afd::ops {
namespace {

TEST(Bf16, EveryValueSurvivesWideningAndRounding) {
    for (uint32_t bits = 0; bits < 0x10000u; ++bits) {
        const Bf16 value{static_cast<uint16_t>(bits)};
        const float wide = to_float(value);
        if (std::isnan(wide)) {
            EXPECT_TRUE(std::isnan(to_float(from_float(wide)))) << bits;
        } else {
            ASSERT_EQ(from_float(wide).bits, value.bits);
        }
    }
}

// Oracle: of the two bf16 neighbours the nearer one in exact (double) distance; halfway the even.
TEST(Bf16, RoundsToNearestTiesToEven) {
    for (uint32_t bits = 0x00000001u; bits < 0x7f7f0000u; bits += 4099u) {
        const float value = std::bit_cast<float>(bits);
        const Bf16 below{static_cast<uint16_t>(bits >> 16)};
        const Bf16 above{static_cast<uint16_t>((bits >> 16) + 1)};
        const double down = static_cast<double>(value) - static_cast<double>(to_float(below));
        const double up = static_cast<double>(to_float(above)) - static_cast<double>(value);
        const bool below_is_even = below.bits % 2 == 0;
        const Bf16 want = down < up || (down == up && below_is_even) ? below : above;
        ASSERT_EQ(from_float(value).bits, want.bits) << value;
        ASSERT_EQ(from_float(-value).bits, want.bits | 0x8000u) << value;
    }
    EXPECT_EQ(from_float(std::bit_cast<float>(0x3f808000u)).bits, 0x3f80u);
    EXPECT_EQ(from_float(std::bit_cast<float>(0x3f818000u)).bits, 0x3f82u);
}

TEST(Bf16, OverflowGivesInfinityAndNanStaysNan) {
    const float largest = std::numeric_limits<float>::max();
    EXPECT_EQ(from_float(largest).bits, 0x7f80u);
    EXPECT_EQ(from_float(-largest).bits, 0xff80u);
    EXPECT_TRUE(std::isnan(to_float(from_float(std::bit_cast<float>(0x7f800001u)))));
    EXPECT_TRUE(std::isnan(to_float(from_float(std::bit_cast<float>(0x7fffffffu)))));
}

}  // namespace
}  // namespace afd::ops
