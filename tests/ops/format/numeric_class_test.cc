// SPDX-License-Identifier: Apache-2.0

#include "ops/format/numeric_class.h"

#include <gtest/gtest.h>

#include <vector>

namespace afd::ops {
namespace {

TEST(NumericClass, NamesParseBack) {
    for (const NumericClass numeric_class : numeric_classes()) {
        EXPECT_EQ(parse_numeric_class(name_of(numeric_class)), numeric_class);
    }
    EXPECT_EQ(parse_numeric_class("avx1024"), std::nullopt);
}

TEST(NumericClass, AllAreListedSlowestFirst) {
    const auto classes = numeric_classes();
    const std::vector<NumericClass> listed(classes.begin(), classes.end());
    EXPECT_EQ(listed,
              (std::vector{NumericClass::kPortable,
                           NumericClass::kAvx2,
                           NumericClass::kAvx512,
                           NumericClass::kAvx512Bf16,
                           NumericClass::kAmx}));
}

TEST(NumericClass, PortableIsAlwaysSupportedAndTheBestIsTheLastNativeOne) {
    const auto classes = supported_numeric_classes();
    ASSERT_FALSE(classes.empty());
    EXPECT_EQ(classes.front(), NumericClass::kPortable);
    NumericClass last = classes.front();
    for (const NumericClass numeric_class : classes) {
        EXPECT_TRUE(supported(numeric_class));
        if (is_native(numeric_class)) last = numeric_class;
    }
    EXPECT_EQ(best_numeric_class(), last);
}

TEST(NumericClass, AmxIsSupportedEverywhere) {
    EXPECT_TRUE(supported(NumericClass::kAmx));
    EXPECT_EQ(supported_numeric_classes().back(), NumericClass::kAmx);
}

}  // namespace
}  // namespace afd::ops
