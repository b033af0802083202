// SPDX-License-Identifier: Apache-2.0
//
// Goal: a text of one client, whatever it is, costs time in proportion to its length. Method: runs
// of one character, which splits leave whole or look through again and again, and which merge in
// many steps, with the splits of released models: apart, and with the merges of one long piece.
// Oracle: the time of the processor for 64 times the text. In proportion it is 64 times as much,
// and up to 180 times where the short text fits into a cache and the memory of the long one is
// taken from the system anew; quadratic it would be 4,096 times.

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "model/tokenizer/pre_tokenizer.h"
#include "model/tokenizer/tokenizer.h"
#include "proto/sanitizers.h"
#include "tests/model/tokenizer/processor_time.h"
#include "tests/model/tokenizer/released_tokenizers.h"

namespace afd::model {
namespace {

constexpr size_t kTimesLonger = 64;
constexpr double kTimesSlowerMax = 1000;
// What disturbs a machine passes; what is quadratic stays so.
constexpr int kTriesMax = 20;
// Of less the clock says more than the work.
constexpr double kShortSecondsMin = 5e-6;
constexpr size_t kShortBytes = AFD_SANITIZED ? 1024 : 4096;

std::string repeated(std::string_view unit, size_t bytes) {
    std::string text;
    while (text.size() < bytes) text += unit;
    return text;
}

// work(text) for a text of `unit` and one that is longer.
template <typename Work>
void expect_linear_time(std::string_view unit, size_t short_bytes, Work&& work) {
    // Behind the run is what ends it: some expressions look for that.
    const std::string short_text = repeated(unit, short_bytes) + "x";
    const std::string long_text = repeated(unit, kTimesLonger * short_bytes) + "x";
    work(short_text);  // What is made at the first text is not counted.
    double short_seconds = std::numeric_limits<double>::infinity();
    double long_seconds = std::numeric_limits<double>::infinity();
    for (int i = 0; i < kTriesMax; ++i) {
        const auto seconds = [&](const std::string& text) {
            return processor_seconds([&] { work(text); });
        };
        short_seconds = std::min(short_seconds, seconds(short_text));
        long_seconds = std::min(long_seconds, seconds(long_text));
        const double counted = std::max(short_seconds, kShortSecondsMin);
        if (long_seconds <= kTimesSlowerMax * counted) return;
    }
    ADD_FAILURE() << testing::PrintToString(std::string(unit)) << ": " << short_text.size()
                  << " bytes take " << short_seconds << " s, " << long_text.size() << " take "
                  << long_seconds;
}

class LinearTime : public testing::TestWithParam<const char*> {};

TEST_P(LinearTime, Splits) {
    auto pre_tokenizer =
        PreTokenizer::parse(released_tokenizer(GetParam()).at("pre_tokenizer"), GetParam());
    ASSERT_TRUE(pre_tokenizer.ok()) << pre_tokenizer.error().message;
    for (const char* unit :
         {"\n", " ", "=", "a", "A", "1", "中", "🙂", "\u0301", " \n", "\r\n"}) {
        std::vector<std::string_view> pieces;
        expect_linear_time(unit, kShortBytes, [&](const std::string& text) {
            pieces.clear();
            ASSERT_TRUE(pre_tokenizer.value().cut(text, true, pieces).ok());
        });
    }
}

TEST_P(LinearTime, MergesOfOneLongPiece) {
    auto tokenizer = Tokenizer::parse(released_tokenizer(GetParam()).dump(), "", GetParam());
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
    for (const char c : kMergedInRuns) {
        expect_linear_time(std::string_view(&c, 1), kShortBytes, [&](const std::string& text) {
            ASSERT_TRUE(tokenizer.value().encode(text).ok());
        });
    }
}

INSTANTIATE_TEST_SUITE_P(Tokenizer,
                         LinearTime,
                         testing::ValuesIn(kReleasedFamilies),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace afd::model
