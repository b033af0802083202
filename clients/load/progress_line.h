// SPDX-License-Identifier: Apache-2.0
#pragma once

// ProgressLine: one line of standard error that is written over again and again; silent when
// standard error is no terminal.

#include <string>

namespace afd::client {

class ProgressLine {
  public:
    ProgressLine();
    ~ProgressLine() { clear(); }
    ProgressLine(const ProgressLine&) = delete;
    ProgressLine& operator=(const ProgressLine&) = delete;

    void show(const std::string& text);
    // Leaves an empty line, as before other output.
    void clear();

  private:
    bool is_terminal_;
    bool is_shown_ = false;
};

}  // namespace afd::client
