// SPDX-License-Identifier: Apache-2.0
#include "model/tokenizer/token_bound.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace afd::model {
namespace {

// Goal: the bound is never higher than what any cut of the text into tokens has. Method: texts that
// are made by joining random tokens. Oracle: the number that was joined.
TEST(TokenBound, IsNeverMoreThanTheTokensOfAnyEncoding) {
    const std::vector<std::string> tokens = {"a", "b", "\n", "ab", "\n\n\n\n", "<|end|>", "b\xff"};
    TokenBound bound;
    for (const std::string& token : tokens) bound.add(token);
    std::mt19937 random(7);
    for (int round = 0; round < 2000; ++round) {
        const uint64_t num_tokens = random() % 300;
        std::string text;
        for (uint64_t i = 0; i < num_tokens; ++i) text += tokens[random() % tokens.size()];
        ASSERT_LE(bound.tokens_min(text), num_tokens) << text;
    }
}

// One very long token does not loosen the bound of texts that it cannot be in.
TEST(TokenBound, IsMadeOfTheLongestTokenWithEachByte) {
    TokenBound bound;
    bound.add("a");
    bound.add("\n\n\n\n");
    bound.add(std::string(128, '-'));
    EXPECT_EQ(bound.tokens_min(""), 0u);
    EXPECT_EQ(bound.tokens_min(std::string(1000, 'a')), 1000u);
    EXPECT_EQ(bound.tokens_min(std::string(1000, '\n')), 250u);
    EXPECT_EQ(bound.tokens_min(std::string(1280, '-')), 10u);
    EXPECT_EQ(bound.tokens_min(std::string(8, '\n') + "aaa"), 5u);
}

// What a changed text was made of can be longer by a factor, and blanks may be in no token at all.
TEST(TokenBound, KnowsLessOfTextsThatAreChanged) {
    TokenBound bound;
    bound.add("a");
    bound.add(std::string(10, '-'));
    bound.set_takes_blanks();
    EXPECT_EQ(bound.tokens_min(std::string(1000, ' ') + "aaa\u3000\t"), 3u);
    bound.set_changed(3);
    EXPECT_EQ(bound.tokens_min(std::string(1000, ' ') + std::string(900, 'a')), 30u);
    bound.set_changed(0);
    EXPECT_EQ(bound.tokens_min(std::string(900, 'a')), 0u);
}

}  // namespace
}  // namespace afd::model
