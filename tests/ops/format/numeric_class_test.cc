// SPDX-License-Identifier: Apache-2.0

#include "ops/format/numeric_class.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace afd::ops {
namespace {

TEST(NumericClass, NamesParseBack) {
    for (const NumericClass numeric_class : numeric_classes()) {
        EXPECT_EQ(parse_numeric_class(name_of(numeric_class)), numeric_class);
    }
    EXPECT_EQ(parse_numeric_class("avx1024"), std::nullopt);
}

TEST(NumericClass, AllAreListedOldestInstructionsFirst) {
    const auto classes = numeric_classes();
    const std::vector<NumericClass> listed(classes.begin(), classes.end());
    EXPECT_EQ(listed,
              (std::vector{NumericClass::kPortable,
                           NumericClass::kAvx2,
                           NumericClass::kAvx512,
                           NumericClass::kAvx512Bf16,
                           NumericClass::kAmx}));
}

TEST(NumericClass, PortableIsAlwaysSupportedAndTheNewestIsTheLastNativeOne) {
    const auto classes = supported_numeric_classes();
    ASSERT_FALSE(classes.empty());
    EXPECT_EQ(classes.front(), NumericClass::kPortable);
    NumericClass last = classes.front();
    for (const NumericClass numeric_class : classes) {
        EXPECT_TRUE(supported(numeric_class));
        if (is_native(numeric_class)) last = numeric_class;
    }
    EXPECT_EQ(newest_numeric_class(), last);
}

// Oracle: what the operating system says of the processor.
TEST(NumericClass, TheBestIsTheNewestButWhereProductsOfPairsAreSlow) {
    std::ifstream file("/proc/cpuinfo");
    const std::string info(std::istreambuf_iterator<char>(file), {});
    const bool is_of_intel = info.find("GenuineIntel") != std::string::npos;
    const bool multiplies_pairs = newest_numeric_class() == NumericClass::kAvx512Bf16;
    EXPECT_EQ(best_numeric_class(),
              is_of_intel && multiplies_pairs ? NumericClass::kAvx512 : newest_numeric_class());
    EXPECT_TRUE(is_native(best_numeric_class()));
}

TEST(NumericClass, AmxIsSupportedEverywhere) {
    EXPECT_TRUE(supported(NumericClass::kAmx));
    EXPECT_EQ(supported_numeric_classes().back(), NumericClass::kAmx);
}

}  // namespace
}  // namespace afd::ops
