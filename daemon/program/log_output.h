// SPDX-License-Identifier: Apache-2.0
#pragma once

// LogOutput: where the lines of the log go, without waiting for whoever does not read them. A pager
// that somebody has left open, a terminal that was stopped, a collector that hangs: a program that
// waited for one of these would serve nobody, and not even end. Whoever is only behind gets a
// moment: lines without room wait, together for kPatience of each second, and if that was in vain
// not at all until one had room.
//
// A pipe or a terminal is opened once more, so that it does not wait here and still does for the
// others who write there; a terminal that may not be (it is another user's) as the one that this
// process is under. A socket is told with each line. What may not be opened again is asked first
// whether it has room, which another writer may take in between. A file is written as files are:
// the kernel may hold a line up while its disk is busy.

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

namespace afd::daemon {

class LogOutput {
  public:
    static constexpr std::chrono::milliseconds kPatience{20};
    static constexpr std::chrono::seconds kPeriod{1};

    // Whatever lies at `fd` when a line is written; what lies there now is opened now, for a
    // process that may open nothing later.
    explicit LogOutput(int fd) : given_(fd) { look(); }
    ~LogOutput();
    LogOutput(const LogOutput&) = delete;
    LogOutput& operator=(const LogOutput&) = delete;

    // A whole line, or nothing of it. False: it is lost, since there is no room for it, or nobody
    // who will ever read it. Of a line with room for a part only the rest goes before the next one,
    // and nowhere if the descriptor leads elsewhere by then. REQUIRES: SIGPIPE is ignored.
    bool write(std::string_view line);

  private:
    using Clock = std::chrono::steady_clock;
    enum class Way { kAsItIs, kOpenedAgain, kSocket, kAsked };

    // Finds the way, if another file lies at the descriptor than before.
    void look();
    void close_own();
    // How many bytes went; waits where there is no room, as long as it may.
    size_t write_on(std::string_view bytes);
    // The same of one call of the kernel, which does not wait.
    size_t write_some(std::string_view bytes) const;
    bool wait_for_room();
    bool has_room(Clock::duration wait) const;

    const int given_;
    std::pair<dev_t, ino_t> file_{};
    Way way_ = Way::kAsItIs;
    int fd_ = -1;             // Of this object where it was opened again.
    size_t asked_bytes_ = 0;  // If there is any room, then for this many: Way::kAsked.
    std::string rest_;        // Of a line that was begun.
    bool is_hung_ = false;    // The last wait was in vain.
    Clock::time_point period_began_;
    Clock::duration waited_{};  // In this period.
};

}  // namespace afd::daemon
