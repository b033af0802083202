// SPDX-License-Identifier: Apache-2.0
#pragma once

// TerminalScreen: the whole terminal for a picture that is drawn again and again. The terminal is
// as it was before when the object ends, when SIGTERM, SIGHUP or SIGQUIT ends the process, and
// while Ctrl-Z has stopped it.

#include <string>
#include <vector>

#include "clients/afdctl/top_screen.h"
#include "clients/cancellation.h"

namespace afd::client {

class TerminalScreen {
  public:
    // REQUIRES: standard output is a terminal; one object in a process.
    TerminalScreen();
    ~TerminalScreen();
    TerminalScreen(const TerminalScreen&) = delete;
    TerminalScreen& operator=(const TerminalScreen&) = delete;

    // As it is now: a window may be resized at any time.
    static ScreenSize size();

    void draw(const std::vector<std::string>& lines);

    enum class Wake { kTime, kResized, kQuit };
    // Waits for `timeout_ms`, or until the window changes its size or is there again after a stop,
    // or somebody wants to leave (q, or the cancellation).
    Wake wait(int timeout_ms, const Cancellation& cancellation);
};

}  // namespace afd::client
