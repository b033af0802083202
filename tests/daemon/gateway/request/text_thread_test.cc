// SPDX-License-Identifier: Apache-2.0
//
// Goal: a text that the loop tokenizes itself holds it for less than a millisecond. Method: the
// longest such texts, of what tokenizers are slow with, no two with the same pieces, because those
// are cached; all kinds of released tokenizers, with vocabularies that merge long runs. Oracle: the
// time of the processor, the least of some texts. A core of a Zen 4 takes 0.7 ms for the worst. The
// bound leaves room for machines a few times slower; ten times as much work exceeds it.
#include "daemon/gateway/request/text_thread.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "model/unicode/utf8.h"
#include "proto/sanitizers.h"
#include "tests/model/tokenizer/processor_time.h"
#include "tests/model/tokenizer/released_tokenizers.h"
#include "tests/model/tokenizer/tiktoken_model.h"

namespace afd::daemon {
namespace {

// With the address sanitizer, 57 ms were seen on a Zen 3 that takes 0.9 to 1.2 ms without.
constexpr double kSecondsMax = AFD_SANITIZED ? 150e-3 : 5e-3;
constexpr size_t kTextsOfAKind = 7;

// As many units as a short text has, less `num_fewer`.
std::string repeated_unit(std::string_view unit, size_t num_fewer) {
    std::string text;
    for (size_t i = TextThread::kShortBytesMax / unit.size() - num_fewer; i > 0; --i) text += unit;
    return text;
}

// `draw(out)` appends a character, again and again.
template <typename Draw>
std::string drawn(Draw&& draw) {
    std::string text;
    while (text.size() + 4 <= TextThread::kShortBytesMax) draw(text);
    return text;
}

void append_any_character(std::mt19937& random, std::string& out) {
    const auto code_point = static_cast<uint32_t>(1 + random() % 0x10FFFF);
    const bool is_surrogate = code_point >= 0xD800 && code_point < 0xE000;
    model::append_utf8(is_surrogate ? 0x4E00 : code_point, out);
}

// A special token of the vocabulary.
std::string special_of(const model::Tokenizer& tokenizer) {
    for (uint32_t id = 0; id < tokenizer.size(); ++id) {
        if (!tokenizer.special_text(id).empty()) return tokenizer.special_text(id);
    }
    ADD_FAILURE() << "no special token";
    return "x";
}

// Kinds of texts; of each some that differ.
std::vector<std::vector<std::string>> slow_texts(const model::Tokenizer& tokenizer) {
    const std::array<std::string, 12> units = {"\n",
                                               " ",
                                               "=",
                                               "a",
                                               "A",
                                               "1",
                                               "中",
                                               "🙂",
                                               "👩‍👩‍👧",
                                               "\u0301",
                                               " \n",
                                               special_of(tokenizer)};
    std::vector<std::vector<std::string>> kinds(units.size() + 2);
    std::mt19937 random(3);
    for (size_t i = 0; i < kTextsOfAKind; ++i) {
        for (size_t kind = 0; kind < units.size(); ++kind) {
            kinds[kind].push_back(repeated_unit(units[kind], i));
        }
        kinds[units.size()].push_back(
            drawn([&](std::string& out) { append_any_character(random, out); }));
        kinds[units.size() + 1].push_back(
            drawn([&](std::string& out) { out += static_cast<char>('a' + random() % 26); }));
    }
    return kinds;
}

void expect_short(model::Tokenizer& tokenizer) {
    for (const std::vector<std::string>& kind : slow_texts(tokenizer)) {
        double least = std::numeric_limits<double>::infinity();
        for (const std::string& text : kind) {
            least = std::min(least, model::processor_seconds([&] {
                                 EXPECT_TRUE(tokenizer.encode(text).ok()) << text;
                             }));
        }
        EXPECT_LT(least, kSecondsMax) << kind.front().substr(0, 40);
    }
}

class ShortTexts : public testing::TestWithParam<const char*> {};

TEST_P(ShortTexts, HoldTheLoopBriefly) {
    auto tokenizer =
        model::Tokenizer::parse(model::released_tokenizer(GetParam()).dump(), "", GetParam());
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
    expect_short(tokenizer.value());
}

INSTANTIATE_TEST_SUITE_P(TextThread,
                         ShortTexts,
                         testing::ValuesIn(model::kReleasedFamilies),
                         [](const auto& test) { return std::string(test.param); });

TEST(TextThread, ShortTextsOfTheDemoModelHoldTheLoopBriefly) {
    auto tokenizer = model::Tokenizer::load(AFD_DEMO_MODEL);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
    expect_short(tokenizer.value());
}

TEST(TextThread, ShortTextsOfATiktokenModelHoldTheLoopBriefly) {
    std::vector<std::string> runs;
    for (size_t length = 2; length <= model::kMergedRunMax; length *= 2) {
        for (const char c : model::kMergedInRuns) runs.emplace_back(length, c);
    }
    const std::string file = model::tiktoken_model(model::tokens_with(runs));
    auto tokenizer = model::Tokenizer::parse_tiktoken(file, "", "tiktoken.model");
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
    expect_short(tokenizer.value());
}

}  // namespace
}  // namespace afd::daemon
