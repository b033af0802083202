// SPDX-License-Identifier: Apache-2.0
#pragma once

// LogOutput: where the lines of the log go, without waiting for whoever does not read them. A pager
// that somebody has left open, a terminal that was stopped, a collector that hangs: a program that
// waited for one of these would serve nobody, and not even end. Who is only behind gets a moment:
// the first line without room waits for kPatience, those after it do not until one had room.
//
// A pipe or a terminal is opened once more, so that it does not wait here and still does for the
// others who write there. A socket is told with each line. A pipe that may not be opened again
// (another user made it) is asked first whether it has room, which another writer may take in
// between. A file is written as files are: the kernel may hold a line up while its disk is busy.

#include <sys/types.h>

#include <chrono>
#include <string>
#include <string_view>
#include <utility>

namespace afd::daemon {

class LogOutput {
  public:
    static constexpr std::chrono::milliseconds kPatience{20};

    // Whatever lies at `fd` when a line is written; what lies there now is opened now, for a
    // process that may open nothing later.
    explicit LogOutput(int fd) : given_(fd) { look(); }
    ~LogOutput();
    LogOutput(const LogOutput&) = delete;
    LogOutput& operator=(const LogOutput&) = delete;

    // A whole line, or nothing of it. False: it is lost, since there is no room for it, or nobody
    // who will ever read it. What has room for a part only is written to its end before the next
    // line.
    bool write(std::string_view line);

  private:
    enum class Way { kAsItIs, kOpenedAgain, kSocket, kAsked };

    // Finds the way, if another file lies at the descriptor than before.
    void look();
    void close_own();
    bool write_now(std::string_view line);
    // How many bytes went; 0: none now.
    size_t write_some(std::string_view bytes) const;
    bool has_room(std::chrono::milliseconds wait) const;

    const int given_;
    std::pair<dev_t, ino_t> file_{};
    Way way_ = Way::kAsItIs;
    int fd_ = -1;       // Of this object where it was opened again.
    std::string rest_;  // Of a line that was begun.
    bool is_patient_ = true;
};

}  // namespace afd::daemon
