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
                           NumericClass::kAvx512Bf16}));
}

TEST(NumericClass, PortableIsAlwaysSupportedAndTheBestIsTheLast) {
    const auto classes = supported_numeric_classes();
    ASSERT_FALSE(classes.empty());
    EXPECT_EQ(classes.front(), NumericClass::kPortable);
    EXPECT_EQ(classes.back(), best_numeric_class());
    for (const NumericClass numeric_class : classes) EXPECT_TRUE(supported(numeric_class));
}

}  // namespace
}  // namespace afd::ops
