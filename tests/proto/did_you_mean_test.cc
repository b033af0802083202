// SPDX-License-Identifier: Apache-2.0
#include "proto/did_you_mean.h"

#include <gtest/gtest.h>

namespace afd {
namespace {

TEST(EditDistance, CountsLettersAndSwapsOfNeighbours) {
    EXPECT_EQ(edit_distance("", "abc"), 3u);
    EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
    EXPECT_EQ(edit_distance("quant_mode", "quant_mode"), 0u);
    EXPECT_EQ(edit_distance("expert_nmu", "expert_num"), 1u);
}

TEST(NearestWord, IsNearerThanAThirdOfTheLengthPlusOne) {
    const std::vector<std::string> words = {"gather", "groups", "all"};
    EXPECT_EQ(nearest_word("gahter", words), "gather");
    EXPECT_EQ(nearest_word("al", words), "all");
    EXPECT_EQ(nearest_word("xyz", words), "");
    EXPECT_EQ(nearest_word("", words), "");
}

// Goal: megabytes of a caller's text cost no time and no memory. Oracle: that a word which differs
// by one letter is near up to the limit, and not above it.
TEST(NearestWord, OfALongWordIsNotLookedFor) {
    const std::string most(kSlipBytesMax, 'a');
    const std::vector<std::string> words = {most + "b"};
    EXPECT_EQ(nearest_word(most, words), words[0]);
    EXPECT_EQ(nearest_word(most + "c", words), "");
    EXPECT_EQ(nearest_word(std::string(100'000'000, 'a'), words), "");
    EXPECT_EQ(did_you_mean(most + "c", words), "");
    EXPECT_EQ(did_you_mean(most, words), " (did you mean '" + words[0] + "'?)");
}

}  // namespace
}  // namespace afd
