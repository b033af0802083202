// SPDX-License-Identifier: Apache-2.0
#pragma once

// LingeringSockets: connections that were given up, until their clients have read why. Closing a
// socket on which unread bytes lie resets it, and the reset may overtake the answer: a client that
// still sends a body which is too large would see "connection reset" and no 413. So the answer is
// followed by the end of the stream, and what comes in is dropped for a second.
//
// They are no sessions any more, and few: beyond the limit the oldest is closed at once.

#include <cstdint>
#include <list>

#include "daemon/loop/event_loop.h"
#include "daemon/loop/unique_fd.h"

namespace afd::daemon {

class LingeringSockets {
  public:
    static constexpr size_t kSocketsMax = 64;
    static constexpr uint64_t kLingerMs = 1000;

    // REQUIRES: `loop` outlives the object.
    explicit LingeringSockets(EventLoop& loop);

    // Ends the stream to the client, and closes the socket a little later.
    void add(UniqueFd socket);

    size_t size() const { return entries_.size(); }

  private:
    // Stays in its place: the watcher is to be destroyed before its socket is closed.
    struct Entry {
        Entry(EventLoop& loop, UniqueFd given, LingeringSockets& owner);

        UniqueFd socket;
        FdWatcher watcher;
        uint64_t until_ms;
    };

    void drop_input(int fd);
    void close_old();

    EventLoop& loop_;
    Timer timer_;
    std::list<Entry> entries_;
};

}  // namespace afd::daemon
