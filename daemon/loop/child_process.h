// SPDX-License-Identifier: Apache-2.0
#pragma once

// ChildProcess: a program that this process has started, until it is known to be gone. Its output
// goes where this process's goes, it reads nothing, and it is in the same session: the scheduler
// may share the cores out by sessions first (autogroup), and a yield then never reaches another of
// ours.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "daemon/loop/event_loop.h"
#include "daemon/loop/process_end.h"
#include "proto/status.h"

namespace afd::daemon {

class ChildProcess {
  public:
    // The descriptor of Start::inherited in the child.
    static constexpr int kInheritedFd = 3;

    struct Start {
        std::string executable;  // Without a '/' in it: looked for in PATH.
        std::vector<std::string> arguments;
        std::vector<std::string> environment = {};  // "KEY=value", beside that of this process.
        std::vector<std::string> withheld = {};     // Variables of this process that it lacks.
        int inherited = -1;  // One descriptor more for the child; stays the caller's. -1: none.
    };
    // Called once, when the process is gone. It may destroy the ChildProcess.
    using OnGone = std::function<void(const ProcessEnd& end)>;

    // Errors: kNotFound or kUnavailable with the system's words.
    static Result<std::unique_ptr<ChildProcess>> start(EventLoop& loop,
                                                       const Start& start,
                                                       OnGone on_gone);
    // A process that still runs goes on, and nobody hears of its end.
    ~ChildProcess();

    ChildProcess(const ChildProcess&) = delete;
    ChildProcess& operator=(const ChildProcess&) = delete;

    int pid() const;
    // Sends SIGKILL; on_gone follows.
    void kill();

  private:
    struct Handle;
    ChildProcess(Handle* handle, OnGone on_gone);

    const OnGone on_gone_;
    Handle* const handle_;
};

}  // namespace afd::daemon
