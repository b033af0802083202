// SPDX-License-Identifier: Apache-2.0
#pragma once

// Progress: one line on stderr that says how far the work is and how long it will take. On a
// terminal it is rewritten in place; elsewhere it is written at most every ten seconds.

#include <unistd.h>

#include <chrono>
#include <optional>
#include <string>

namespace afd::tools {

class Progress {
  public:
    // `what` is done, as the line begins.
    explicit Progress(std::string what);

    // `share` of the work is done, 0 to 1; 1 ends the line. What the first call says was there
    // before, as after an interruption, is not counted into the speed.
    void show(double share);

  private:
    using Clock = std::chrono::steady_clock;

    std::string time_left(Clock::time_point now, double share) const;

    const std::string what_;
    const bool is_terminal_ = isatty(STDERR_FILENO) != 0;
    bool is_shown_ = false;
    std::optional<double> first_share_;
    Clock::time_point begin_ = Clock::now();  // When first_share_ was.
    Clock::time_point shown_ = begin_;
};

}  // namespace afd::tools
