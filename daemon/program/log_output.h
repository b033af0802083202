// SPDX-License-Identifier: Apache-2.0
#pragma once

// LogOutput: where the lines of the log go, without waiting for whoever reads them. A pager that
// somebody has left open, a terminal that was stopped, a collector that hangs: a program that
// waited for one of these would serve nobody, and not even end.
//
// A pipe or a terminal is opened once more, so that it does not wait here and still does for the
// others who write there. A socket is told with each line. A pipe that may not be opened again
// (another user made it) is asked first whether it has room, which another writer may take in
// between. A file is written as files are: the kernel may hold a line up while its disk is busy.

#include <string>
#include <string_view>

namespace afd::daemon {

class LogOutput {
  public:
    // REQUIRES: `fd` stays open.
    explicit LogOutput(int fd);
    ~LogOutput();
    LogOutput(const LogOutput&) = delete;
    LogOutput& operator=(const LogOutput&) = delete;

    // A whole line, or nothing of it. False: it is lost, since there is no room for it, or nobody
    // who will ever read it. What has room for a part only is written to its end before the next
    // line.
    bool write(std::string_view line);

  private:
    enum class Way { kAsItIs, kOpenedAgain, kSocket, kAsked };

    static Way way_of(int fd);
    // How many bytes went; 0: none now.
    size_t write_some(std::string_view bytes) const;
    bool has_room() const;

    Way way_;
    int fd_;            // Of this object where it was opened again.
    std::string rest_;  // Of a line that was begun.
};

}  // namespace afd::daemon
