// SPDX-License-Identifier: Apache-2.0
#include "model/tokenizer/splitter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace afd::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The three splits of DeepSeek-V3's tokenizer.json.
const std::vector<std::string> kV3Splits = {
    R"(\p{N}{1,3})",
    R"([一-龥぀-ゟ゠-ヿ]+)",
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|)"
    R"( ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};

std::vector<std::string> split_by(const std::vector<std::string>& patterns,
                                  const std::string& text) {
    std::vector<std::string> pieces = {text};
    for (const std::string& pattern : patterns) {
        auto compiled = TextPattern::expression(pattern);
        EXPECT_TRUE(compiled.ok()) << compiled.error().message;
        Splitter splitter(std::move(compiled).value(), SplitBehavior::kIsolated, false);
        std::vector<std::string> next;
        for (const std::string& piece : pieces) {
            std::vector<std::string_view> parts;
            const auto result = splitter.split(piece, parts);
            EXPECT_TRUE(result.ok()) << result.error().message;
            next.insert(next.end(), parts.begin(), parts.end());
        }
        pieces = std::move(next);
    }
    return pieces;
}

TEST(Splitter, SplitsLikeDeepSeekV3) {
    EXPECT_THAT(split_by(kV3Splits, "Hello, world!"), ElementsAre("Hello", ",", " world", "!"));
    EXPECT_THAT(split_by(kV3Splits, "jumps over 1234567 lazy dogs."),
                ElementsAre("jumps", " over", " ", "123", "456", "7", " lazy", " dogs", "."));
    EXPECT_THAT(split_by(kV3Splits, "你好，世界！测试abc"),
                ElementsAre("你好", "，", "世界", "！", "测试", "abc"));
    EXPECT_THAT(split_by(kV3Splits, "don't  stop\n\n now"),
                ElementsAre("don", "'t", " ", " stop", "\n\n", " now"));
    EXPECT_THAT(split_by(kV3Splits, "emoji 🙂 ok"), ElementsAre("emoji", " 🙂", " ok"));
}

TEST(Splitter, MatchesScriptsAndNotScriptExtensions) {
    // The ideographic comma and stop belong to Han only by extension.
    EXPECT_THAT(split_by({R"(\p{Han}+)"}, "中文、测试。日本"),
                ElementsAre("中文", "、", "测试", "。", "日本"));
}

// As Oniguruma's own iteration: an empty match cuts, unless it touches the match before it.
TEST(Splitter, CutsAtEmptyMatches) {
    EXPECT_THAT(split_by({"x*"}, "aéxxb"), ElementsAre("a", "é", "xx", "b"));
    EXPECT_THAT(split_by({"$"}, "a\nb"), ElementsAre("a", "\nb"));
}

std::vector<std::string> split_at_hyphens(SplitBehavior behavior, bool is_inverted) {
    Splitter splitter(TextPattern::literal("-"), behavior, is_inverted);
    std::vector<std::string_view> parts;
    EXPECT_TRUE(splitter.split("the-final--day-", parts).ok());
    return {parts.begin(), parts.end()};
}

TEST(Splitter, DoesWithAMatchWhatItsBehaviorSays) {
    EXPECT_THAT(split_at_hyphens(SplitBehavior::kIsolated, false),
                ElementsAre("the", "-", "final", "-", "-", "day", "-"));
    EXPECT_THAT(split_at_hyphens(SplitBehavior::kRemoved, false),
                ElementsAre("the", "final", "day"));
    EXPECT_THAT(split_at_hyphens(SplitBehavior::kContiguous, false),
                ElementsAre("the", "-", "final", "--", "day", "-"));
    EXPECT_THAT(split_at_hyphens(SplitBehavior::kMergedWithPrevious, false),
                ElementsAre("the-", "final-", "-", "day-"));
    EXPECT_THAT(split_at_hyphens(SplitBehavior::kMergedWithNext, false),
                ElementsAre("the", "-final", "-", "-day", "-"));
    EXPECT_THAT(split_at_hyphens(SplitBehavior::kRemoved, true), ElementsAre("-", "-", "-", "-"));
    EXPECT_THAT(split_at_hyphens(SplitBehavior::kMergedWithNext, true),
                ElementsAre("the-", "final-", "-", "day-"));
}

TEST(Splitter, SplitsLongRunsWithoutRecursion) {
    const std::string spaces(200000, ' ');
    EXPECT_THAT(split_by({kV3Splits[2]}, spaces + "a"),
                ElementsAre(std::string(199999, ' '), " a"));
    const std::string letters(200000, 'a');
    EXPECT_THAT(split_by({R"((?:(?!b)[a-z])+)"}, letters + "b"), ElementsAre(letters, "b"));
}

}  // namespace
}  // namespace afd::model
