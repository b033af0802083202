// SPDX-License-Identifier: Apache-2.0
#include "model/tokenizer/stop_strings.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace afd::model {
namespace {

// Where a text ends, by looking at all its beginnings that are longer than `num_unended`.
struct Cut {
    std::string text;
    std::string match;  // Empty: none.
};

Cut cut_by_searching(const std::string& text,
                     const std::vector<std::string>& stops,
                     bool keeps_match,
                     size_t num_unended) {
    for (size_t end = num_unended + 1; end <= text.size(); ++end) {
        std::string longest;
        for (const std::string& stop : stops) {
            const bool ends_here =
                end >= stop.size() && text.compare(end - stop.size(), stop.size(), stop) == 0;
            if (ends_here && stop.size() > longest.size()) longest = stop;
        }
        if (longest.empty()) continue;
        return {text.substr(0, keeps_match ? end : end - longest.size()), longest};
    }
    return {text, ""};
}

// Goal: the cut depends on the text and not on its parts, and what is returned is never taken
// back. Method: random texts of two letters, so that borders overlap, in random parts; in every
// other one no string may be complete in the first ones. Oracle: cut_by_searching(); every prefix
// returned so far is a prefix of its text.
TEST(StopStrings, CutWhereASearchOfTheWholeTextCuts) {
    std::mt19937 random(11);
    const auto word = [&](size_t size) {
        std::string text;
        for (size_t i = 0; i < size; ++i) text += random() % 2 == 0 ? 'a' : 'b';
        return text;
    };
    size_t num_matches = 0;
    for (int round = 0; round < 5000; ++round) {
        std::vector<std::string> stops(1 + random() % 3);
        for (std::string& stop : stops) stop = word(1 + random() % 7);
        const std::string text = word(random() % 40);
        const bool keeps_match = random() % 2 == 0;
        const size_t num_unended = random() % 2 * (random() % 20);
        const Cut expected = cut_by_searching(text, stops, keeps_match, num_unended);
        StopStrings found(stops, keeps_match);
        std::string out;
        for (size_t at = 0; at < text.size();) {
            size_t size = 1 + random() % 5;
            if (at < num_unended) size = std::min(size, num_unended - at);
            const std::string_view part = std::string_view(text).substr(at, size);
            out += at < num_unended ? found.append_unended(part) : found.append(part);
            at += size;
            ASSERT_EQ(expected.text.substr(0, out.size()), out);
        }
        out += found.finish();
        ASSERT_EQ(out, expected.text) << text;
        ASSERT_EQ(found.match().value_or(""), expected.match) << text;
        num_matches += expected.match.empty() ? 0 : 1;
    }
    EXPECT_GT(num_matches, 1000U);
}

TEST(StopStrings, HoldBackOnlyWhatMayBecomeOne) {
    StopStrings stops({"\n\nHuman"}, false);
    EXPECT_EQ(stops.append("Hello"), "Hello");
    EXPECT_EQ(stops.append("!\n"), "!");
    EXPECT_EQ(stops.append("x"), "\nx");
    EXPECT_EQ(stops.append("\n\nHum"), "");
    EXPECT_EQ(stops.append("mm"), "\n\nHummm");
    EXPECT_EQ(stops.append("\n\n\nHu"), "\n");
    EXPECT_EQ(stops.append("man: hi"), "");
    EXPECT_EQ(stops.match(), "\n\nHuman");
    EXPECT_EQ(stops.append("more"), "") << "nothing after the end";
    EXPECT_EQ(stops.finish(), "");
}

TEST(StopStrings, OfThoseCompleteAtOneByteTheLongestCounts) {
    StopStrings stops({"c", "abc", "bc"}, false);
    EXPECT_EQ(stops.append("xabc"), "x");
    EXPECT_EQ(stops.match(), "abc");
}

TEST(StopStrings, NoStringsHoldNothingBack) {
    StopStrings stops({}, false);
    EXPECT_EQ(stops.append("text"), "text");
    EXPECT_EQ(stops.finish(), "");
    EXPECT_FALSE(stops.match().has_value());
}

}  // namespace
}  // namespace afd::model
