// SPDX-License-Identifier: Apache-2.0
//
// What PCRE2 makes of a translated expression. Oracle: what Oniguruma documents for its own; the
// classes are compared with the tokenizers library in golden_test.cc.
#include "model/unicode/pattern_translator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "model/unicode/new_characters.h"
#include "model/unicode/text_pattern.h"

namespace afd::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> found(const std::string& expression, const std::string& text) {
    auto pattern = TextPattern::expression(expression);
    EXPECT_TRUE(pattern.ok()) << pattern.error().message;
    if (!pattern.ok()) return {};
    std::vector<PatternMatch> matches;
    EXPECT_TRUE(pattern.value().find_all(text, matches).ok());
    std::vector<std::string> texts;
    for (const auto& match : matches) {
        texts.push_back(text.substr(match.begin, match.end - match.begin));
    }
    return texts;
}

TEST(PatternTranslator, IntersectsAndUnitesSets) {
    EXPECT_THAT(found("[a-z&&[^aeiou]]+", "education"), ElementsAre("d", "c", "t", "n"));
    EXPECT_THAT(found("[a-z&&[^aeiou]&&[^c-n]]+", "education"), ElementsAre("t"));
    EXPECT_THAT(found("[^a-z&&[^aeiou]]+", "education1"), ElementsAre("e", "u", "a", "io", "1"));
    EXPECT_THAT(found("[x[a-c]]+", "abxyc"), ElementsAre("abx", "c"));
    EXPECT_THAT(found("[^x[a-c]]+", "abxyzc"), ElementsAre("yz"));
    EXPECT_THAT(found(R"([\P{Lu}&&\p{L}]+)", "aBc1"), ElementsAre("a", "c"));
    EXPECT_THAT(found(R"([]a]+|[[:digit:]\[]&&)", "a]1&&"), ElementsAre("a]", "1&&"));
    // The pattern of Kimi: words of letters that are not Han.
    EXPECT_THAT(found(R"([\p{Han}]+|[\p{Lu}\p{Lo}&&[^\p{Han}]]*[\p{Ll}\p{Lo}&&[^\p{Han}]]+)",
                      "中文Abcひら。"),
                ElementsAre("中文", "Abcひら"));
}

TEST(PatternTranslator, MatchesScriptsAndNotScriptExtensions) {
    // The ideographic comma and stop belong to Han only by extension.
    EXPECT_THAT(found(R"(\p{Han}+)", "中文、测试。日本"), ElementsAre("中文", "测试", "日本"));
    EXPECT_THAT(found(R"(\p{^Han}+)", "中、文"), ElementsAre("、"));
    EXPECT_THAT(found(R"([^\p{Han}]+)", "中、文"), ElementsAre("、"));
    EXPECT_THAT(found(R"(\P{Greek}+)", "αaβ"), ElementsAre("a"));
    EXPECT_THAT(found(R"(\\p{2})", "\\pp"), ElementsAre("\\pp"));
}

TEST(PatternTranslator, KnowsTheCharactersOfUnicode16) {
    // An emoji of 2022, an ideograph of extension H and one of I, a letter of Garay.
    EXPECT_THAT(found(R"(\p{S})", "\U0001FAE8"), ElementsAre("\U0001FAE8"));
    EXPECT_THAT(found(R"([^\s\p{S}])", "\U0001FAE8"), IsEmpty());
    EXPECT_THAT(found(R"([\p{L}]+)", "\U00031350\U0002EBF0\U00010D50"),
                ElementsAre("\U00031350\U0002EBF0\U00010D50"));
    EXPECT_THAT(found(R"(\p{Han}+)", "\U00031350\U0002EBF0\U00010D50"),
                ElementsAre("\U00031350\U0002EBF0"));
    EXPECT_THAT(found(R"(\P{L}|[\P{L}]|\p{Cn}|[\p{C}])", "\U00031350"), IsEmpty());
    EXPECT_THAT(found(R"(\p{Cn})", "\U000E0080"), ElementsAre("\U000E0080"));
    // A format control, which is in C and assigned.
    EXPECT_THAT(found(R"(\p{C})", "\U00013439"), ElementsAre("\U00013439"));
    EXPECT_THAT(found(R"(\P{C}|\p{Cn})", "\U00013439"), IsEmpty());
}

TEST(PatternTranslator, HasTheClassesOfOniguruma) {
    EXPECT_THAT(found(R"(\s)", "\u180E\u3000"), ElementsAre("\u3000"));
    EXPECT_THAT(found(R"(\S+|[\S])", "\u180E\u3000"), ElementsAre("\u180E"));
    EXPECT_THAT(found(R"(\w+)", "e\u0301_1\u00BD\u2075"), ElementsAre("e\u0301_1\u00BD"));
    EXPECT_THAT(found(R"(\bc\b)", "c ce\u0301 c\u0301"), ElementsAre("c"));
    EXPECT_THAT(found(R"(\h+)", "xfe0"), ElementsAre("fe0"));
    EXPECT_THAT(found(R"(\u0041[\u0042])", "AB"), ElementsAre("AB"));
    EXPECT_THAT(found(R"(\v|[\v])", "\n\x0B"), ElementsAre("\x0B"));
}

// A class is translated to ranges; a hyphen after it is one all the same.
TEST(PatternTranslator, TakesAHyphenAfterAClassForItself) {
    EXPECT_THAT(found(R"([\w-.]+)", "a-b./c"), ElementsAre("a-b.", "c"));
    EXPECT_THAT(found(R"([\p{L}-~]+)", "a-~}\U00031350"), ElementsAre("a-~", "\U00031350"));
    EXPECT_THAT(found(R"([\s-])", "a-b c"), ElementsAre("-", " "));
}

TEST(PatternTranslator, TellsTextsWithNewCharacters) {
    EXPECT_FALSE(has_new_characters(""));
    EXPECT_FALSE(has_new_characters("the \u00e9\u07fd\u0896\u4e2d\uffff\U0001F642\U0010FFFF"));
    for (const char* text : {"a\u0897", "\u180e", "\u2ffcb", "\U0001FAE8", "x\U00031350"}) {
        EXPECT_TRUE(has_new_characters(text)) << text;
    }
}

TEST(PatternTranslator, RepeatsRepetitions) {
    EXPECT_THAT(found(R"(a{2}+b)", "aaaab"), ElementsAre("aaaab"));
    EXPECT_THAT(found(R"((?:ab){2,3}+b)", "ababababb"), ElementsAre("ababababb"));
    EXPECT_THAT(found(R"(\p{N}{1,3}+)", "12345"), ElementsAre("12345"));
    EXPECT_THAT(found(R"(é{2}?x)", "ééx"), ElementsAre("ééx"));
    EXPECT_THAT(found(R"(é{2}?x)", "éx"), ElementsAre("x"));
    EXPECT_THAT(found(R"(a{1,2}?)", "aa"), ElementsAre("a", "a"));
    EXPECT_THAT(found(R"(ba{,2})", "baaa"), ElementsAre("baa"));
    EXPECT_THAT(found(R"(a{x}|{)", "a{x}{"), ElementsAre("a{x}", "{"));
    EXPECT_THAT(found(R"([ab]++b)", "aab"), IsEmpty());
    EXPECT_THAT(found(R"(\x41{2}+B)", "AAAAB"), ElementsAre("AAAAB"));
}

// Goal: a run of n blanks costs n steps, not n * n. The watchdog of the test is the limit.
TEST(PatternTranslator, LooksAtRunsOfBlanksOnce) {
    const std::string blanks(1000000, ' ');
    EXPECT_THAT(found(R"(\s+$)", blanks + "x"), IsEmpty());
    EXPECT_THAT(found(R"(\s+$)", "a  \n  \n x \n"), ElementsAre("  \n  ", " \n"));
}

TEST(PatternTranslator, RefusesWhatItCannotTranslate) {
    EXPECT_THAT(translate_pattern("(?m:a.b)", PatternUse::kAllTexts).error().message,
                HasSubstr("the pattern (?m:a.b) uses the option (?m), which is not supported"));
    EXPECT_THAT(translate_pattern("[a[b]", PatternUse::kAllTexts).error().message,
                HasSubstr("a set without its end"));
    EXPECT_THAT(translate_pattern("[[:alpha]", PatternUse::kAllTexts).error().message,
                HasSubstr("an open [: class"));
    for (const char letter : std::string("BCcGELMNOQUVYy")) {
        const std::string escape = std::string("\\") + letter;
        EXPECT_THAT(translate_pattern("[" + escape + "x]", PatternUse::kAllTexts).error().message,
                    HasSubstr("uses the escape " + escape + ", which is not supported"));
    }
    EXPECT_THAT(translate_pattern(std::string(65, '['), PatternUse::kAllTexts).error().message,
                HasSubstr("sets in more than 63 others"));
    EXPECT_EQ(translate_pattern(std::string(16385, 'a'), PatternUse::kAllTexts).error().message,
              "a pattern has 16385 bytes; supported: at most 16384");
    const auto broken = TextPattern::expression("(a");
    ASSERT_FALSE(broken.ok());
    EXPECT_EQ(broken.error().code, Code::kDataLoss);
    EXPECT_THAT(broken.error().message, HasSubstr("the pattern (a is not accepted"));
}

}  // namespace
}  // namespace afd::model
