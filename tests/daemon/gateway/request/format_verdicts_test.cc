// SPDX-License-Identifier: Apache-2.0
//
// Oracle: how often a format is judged, counted here.

#include "daemon/gateway/request/format_verdicts.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace afd::daemon {
namespace {

class CountingJudge {
  public:
    // Formats that begin with "bad" are.
    Result<> judge(const std::string& format) {
        return verdicts_.of(format, [&]() -> Result<> {
            ++num_judged_[format];
            if (format.starts_with("bad")) return Error{Code::kInvalidArgument, format};
            return {};
        });
    }
    size_t num_judged(const std::string& format) { return num_judged_[format]; }

  private:
    FormatVerdicts verdicts_;
    std::map<std::string, size_t> num_judged_;
};

TEST(FormatVerdicts, FormatsThatComeInTurnsAreJudgedOnce) {
    CountingJudge formats;
    for (int turn = 0; turn < 5; ++turn) {
        EXPECT_TRUE(formats.judge("a").ok());
        const auto bad = formats.judge("bad");
        ASSERT_FALSE(bad.ok());
        EXPECT_EQ(bad.error().message, "bad");
    }
    EXPECT_EQ(formats.num_judged("a"), 1U);
    EXPECT_EQ(formats.num_judged("bad"), 1U);
}

TEST(FormatVerdicts, TheOneThatNobodySentForLongestIsForgotten) {
    CountingJudge formats;
    for (size_t i = 0; i < FormatVerdicts::kFormatsMax; ++i) {
        EXPECT_TRUE(formats.judge(std::to_string(i)).ok());
    }
    EXPECT_TRUE(formats.judge("0").ok());
    EXPECT_TRUE(formats.judge("new").ok());
    EXPECT_TRUE(formats.judge("0").ok());
    EXPECT_TRUE(formats.judge("1").ok());
    EXPECT_EQ(formats.num_judged("0"), 1U);
    EXPECT_EQ(formats.num_judged("1"), 2U);
}

TEST(FormatVerdicts, LongFormatsLeaveRoomForFew) {
    CountingJudge formats;
    const std::string half_a(FormatVerdicts::kBytesMax / 2, 'a');
    const std::string half_b(FormatVerdicts::kBytesMax / 2, 'b');
    EXPECT_TRUE(formats.judge(half_a).ok());
    EXPECT_TRUE(formats.judge(half_b).ok());
    EXPECT_TRUE(formats.judge(half_a).ok());
    EXPECT_EQ(formats.num_judged(half_a), 1U);
    const std::string whole(2 * FormatVerdicts::kBytesMax, 'c');
    EXPECT_TRUE(formats.judge(whole).ok());
    EXPECT_TRUE(formats.judge(whole).ok());
    EXPECT_EQ(formats.num_judged(whole), 1U);
    EXPECT_TRUE(formats.judge(half_a).ok());
    EXPECT_EQ(formats.num_judged(half_a), 2U);
}

}  // namespace
}  // namespace afd::daemon
