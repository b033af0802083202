// SPDX-License-Identifier: Apache-2.0
#pragma once

// ChildOutput: what the children of a test print, and whether UCX has aborted one of them.
//
// UCX 1.13.1, as Debian 12 has it, ends a process by assertions of its own when its peer dies, or
// when a connection is given up, while the two connect. Seen: tcp_ep.c line 478 (the end of the
// socket for data is put on a list as that of an endpoint that cannot send, then it is wired up and
// can, then the list is worked off) and tcp_sockcm_ep.c line 416. No call of ours comes between. To
// the rest of the instance it is one more worker that died, so the tests want it survived as such.
// UCX prints a line with the process before; a failed AFD_ASSERT prints another one.

#include <sys/types.h>

#include <string>

namespace afd::schedule {

class ChildOutput {
  public:
    ChildOutput();
    ChildOutput(const ChildOutput&) = delete;
    ChildOutput& operator=(const ChildOutput&) = delete;
    ~ChildOutput();  // Prints it all.

    // In a child: its standard output and error go here from now on.
    void take_over() const;
    // Whether UCX said that it aborts process `pid`.
    bool has_abort_of_ucx(pid_t pid) const;

  private:
    std::string text() const;

    int fd_;
};

}  // namespace afd::schedule
