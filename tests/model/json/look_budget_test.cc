// SPDX-License-Identifier: Apache-2.0
#include "model/json/look_budget.h"

#include <gtest/gtest.h>

namespace afd::model {
namespace {

TEST(LookBudget, IsSpentByWhatIsBeyondIt) {
    LookBudget looks(3);
    EXPECT_TRUE(looks.take(1));
    EXPECT_TRUE(looks.take(2));
    EXPECT_TRUE(looks.take(0));
    EXPECT_FALSE(looks.is_spent());
    EXPECT_FALSE(looks.take(1));
    EXPECT_TRUE(looks.is_spent());
}

TEST(LookBudget, HasNothingBehindWhatWasBeyondIt) {
    LookBudget looks(3);
    EXPECT_FALSE(looks.take(4));
    EXPECT_TRUE(looks.is_spent());
    EXPECT_FALSE(looks.take(1));
    EXPECT_FALSE(looks.take(0));
}

}  // namespace
}  // namespace afd::model
