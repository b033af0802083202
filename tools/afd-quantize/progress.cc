// SPDX-License-Identifier: Apache-2.0
#include "tools/afd-quantize/progress.h"

#include <fmt/core.h>

#include <cstdio>
#include <utility>

namespace afd::tools {
namespace {

constexpr std::chrono::milliseconds kTerminalPeriod{200};
constexpr std::chrono::milliseconds kLogPeriod{10'000};

}  // namespace

Progress::Progress(std::string what) : what_(std::move(what)) {}

void Progress::show(double share) {
    const Clock::time_point now = Clock::now();
    if (!first_share_) {
        first_share_ = share;
        begin_ = now;
    }
    const bool is_due = now - shown_ >= (is_terminal_ ? kTerminalPeriod : kLogPeriod);
    if (!is_due && share < 1) return;
    if (share >= 1 && !is_shown_) return;
    shown_ = now;
    is_shown_ = true;
    std::fprintf(stderr,
                 "%s%s: %3.0f %%%s%s",
                 is_terminal_ ? "\r\x1b[K" : "",
                 what_.c_str(),
                 share * 100,
                 time_left(now, share).c_str(),
                 is_terminal_ && share < 1 ? "" : "\n");
}

std::string Progress::time_left(Clock::time_point now, double share) const {
    if (share >= 1 || share <= *first_share_) return "";
    const std::chrono::duration<double> passed = now - begin_;
    const double seconds = passed.count() * (1 - share) / (share - *first_share_);
    return seconds < 90 ? fmt::format(", about {:.0f} s left", seconds)
                        : fmt::format(", about {:.0f} min left", seconds / 60);
}

}  // namespace afd::tools
