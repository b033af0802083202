// SPDX-License-Identifier: Apache-2.0
#include "model/unicode/unicode_form.h"

#include <gtest/gtest.h>

#include <string>

namespace afd::model {
namespace {

constexpr UnicodeForm kNfc{.is_compatible = false, .is_composed = true};
constexpr UnicodeForm kNfd{.is_compatible = false, .is_composed = false};
constexpr UnicodeForm kNfkc{.is_compatible = true, .is_composed = true};

TEST(UnicodeForm, ComposesAndDecomposes) {
    EXPECT_EQ(in_form("e\u0301a", kNfc), "\u00e9a");
    EXPECT_EQ(in_form("x\u00e9", kNfd), "xe\u0301");
    // Angstrom is the letter; a composition that Unicode excludes; marks change places.
    EXPECT_EQ(in_form("\u212b", kNfc), "\u00c5");
    EXPECT_EQ(in_form("\u0958", kNfc), "\u0915\u093c");
    EXPECT_EQ(in_form("a\u0307\u0323", kNfc), "\u1ea1\u0307");
    EXPECT_EQ(in_form("\u1112\u1161\u11ab", kNfc), "\ud55c");
    EXPECT_EQ(in_form("\ud55c", kNfd), "\u1112\u1161\u11ab");
    EXPECT_EQ(in_form("\ufb01\uff21\u2460\u00bd", kNfkc), "fiA11\u20442");
    EXPECT_EQ(in_form("plain \u4e2d\u6587 \u043c", kNfc), "plain \u4e2d\u6587 \u043c");
    EXPECT_EQ(in_form("", kNfc), "");
}

// A mark joins what stands before it wherever the text is cut into parts.
TEST(UnicodeForm, IsTheSameForPartsAndTheWhole) {
    std::string text;
    std::string expected;
    for (int i = 0; i < 300; ++i) {
        text += std::string(static_cast<size_t>(i % 7), 'b') + "e\u0301";
        expected += std::string(static_cast<size_t>(i % 7), 'b') + "\u00e9";
    }
    EXPECT_EQ(in_form(text, kNfc), expected);
    EXPECT_EQ(in_form(expected, kNfd), text);
}

// Goal: a long run of marks costs no more than sorting them; exchanging neighbours would take
// minutes here, and the watchdog of the test ends it.
TEST(UnicodeForm, SortsALongRunOfMarks) {
    std::string text = "a";
    for (int i = 0; i < 200000; ++i) text += "\u0301\u0323";
    std::string expected = "\u1ea1";
    for (int i = 0; i < 199999; ++i) expected += "\u0323";
    for (int i = 0; i < 200000; ++i) expected += "\u0301";
    EXPECT_EQ(in_form(text, kNfc), expected);
}

// The square Reiwa sign has a compatible form since Unicode 12; the library's tables are older.
TEST(UnicodeForm, LeavesWhatTheTokenizersLibraryLeaves) {
    EXPECT_EQ(in_form("\u32ff\u32fe", kNfkc), "\u32ff\u30f2");
    EXPECT_EQ(in_form("\U00011938", kNfd), "\U00011938");
    EXPECT_EQ(in_form("a\u1abf\u0301\u0323", kNfc), "a\u1abf\u0323\u0301");
    EXPECT_EQ(in_lower_case("\U00010D50\ua7cc\ua7cd\ua7dc"), "\U00010D70\ua7cd\ua7cd\u019b");
}

TEST(UnicodeForm, LowersEachCharacterAlone) {
    EXPECT_EQ(in_lower_case("ABC \u00c9\u0416\u03a3 \u0130\u4e2d"),
              "abc \u00e9\u0436\u03c3 i\u0307\u4e2d");
}

}  // namespace
}  // namespace afd::model
