// SPDX-License-Identifier: Apache-2.0
#pragma once

// WorkerProcess: one process that has a worker's slot, from its start until it is known to be gone
// (R8): reaped as a child, or its pidfd signalled if it was started by hand.

#include <memory>
#include <string>
#include <vector>

#include "daemon/loop/child_process.h"
#include "daemon/loop/event_loop.h"
#include "daemon/loop/process_end.h"
#include "daemon/loop/unique_fd.h"
#include "proto/control.pb.h"
#include "proto/status.h"
#include "schedule/shared_memory/oom_watch.h"

namespace afd::daemon {

class WorkerProcess {
  public:
    // It may destroy the WorkerProcess.
    using OnGone = ChildProcess::OnGone;

    // As a child of afdd, without AFD_API_KEY in its environment. `oom_watch` outlives it, and
    // tells why a SIGKILL came that is not of kill(). Errors: those of ChildProcess::start().
    static Result<std::unique_ptr<WorkerProcess>> spawn(EventLoop& loop,
                                                        const std::string& executable,
                                                        const std::vector<std::string>& arguments,
                                                        OnGone on_gone,
                                                        schedule::OomWatch& oom_watch);
    // With the watch of this process's group: one for all children, for a count that rises is the
    // end of one of them.
    static Result<std::unique_ptr<WorkerProcess>> spawn(EventLoop& loop,
                                                        const std::string& executable,
                                                        const std::vector<std::string>& arguments,
                                                        OnGone on_gone);

    // Watches a process that somebody else started. `socket` is its connection: if that still
    // holds after the pidfd is open, the pid was not reused meanwhile.
    // Errors: kUnavailable: it is gone already.
    static Result<std::unique_ptr<WorkerProcess>> adopt(EventLoop& loop,
                                                        int pid,
                                                        int socket,
                                                        OnGone on_gone);

    int pid() const { return pid_; }

    // Sends SIGKILL; on_gone follows.
    void kill();
    // Likewise, to one that has closed its connection: usually it is ending, of what its end says.
    void end_disconnected();

  private:
    explicit WorkerProcess(OnGone on_gone) : on_gone_(std::move(on_gone)) {}

    OnGone on_gone_;  // Of one that was adopted.
    int pid_ = 0;
    bool was_killed_ = false;              // By kill().
    std::unique_ptr<ChildProcess> child_;  // Spawned.
    UniqueFd pidfd_;                       // Adopted.
    std::unique_ptr<FdWatcher> watcher_;
};

// Whether a worker that ended so has a fault: a signal that a process brings upon itself, or an
// exit that says so. REQUIRES: nobody had asked it to end.
bool has_crashed(const ProcessEnd& end);

// What stops the process: a signal or a debugger (state T or t in /proc/PID/stat). Whoever stops it
// under a debugger looks at it.
control::Stop stop_of_process(int pid);

}  // namespace afd::daemon
