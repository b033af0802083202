// SPDX-License-Identifier: Apache-2.0
#include "proto/typed_number.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

namespace afd {
namespace {

std::string taken(std::string text, uint64_t low, uint64_t high) {
    const std::string wrong = take_whole_number(text, low, high);
    return wrong.empty() ? text : wrong;
}

TEST(TypedNumber, WholeNumbersAreDecimal) {
    EXPECT_EQ(taken("010", 0, 10), "10");
    EXPECT_EQ(taken("18446744073709551615", 0, UINT64_MAX), "18446744073709551615");
    EXPECT_EQ(taken("11", 1, 10), "'11' must be a whole number from 1 to 10");
    EXPECT_EQ(taken("0", 1, 10), "'0' must be a whole number from 1 to 10");
    for (const char* wrong :
         {"", "-1", "+1", " 1", "1 ", "0x1", "1.5", "1e3", "nan", "many", "18446744073709551616"}) {
        EXPECT_NE(taken(wrong, 0, UINT64_MAX), wrong);
    }
}

TEST(TypedNumber, NumbersAreFiniteAndWithinTheirRange) {
    for (const char* right : {"0.001", "1e6", "010", "7"}) {
        EXPECT_EQ(take_number(right, 0.001, 1e6), "") << right;
    }
    EXPECT_EQ(take_number("nan", 0.001, 1e6), "'nan' must be a number from 0.001 to 1000000");
    for (const char* wrong : {"", "-nan", "inf", "-inf", "1e999", "0", "2e6", "1x", " 1", "many"}) {
        EXPECT_NE(take_number(wrong, 0.001, 1e6), "") << wrong;
    }
}

}  // namespace
}  // namespace afd
