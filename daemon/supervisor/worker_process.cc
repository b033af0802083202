// SPDX-License-Identifier: Apache-2.0
#include "daemon/supervisor/worker_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>

#include <array>
#include <csignal>
#include <cstring>

#include "daemon/control/worker_control.h"

namespace afd::daemon {

namespace {

// The letter in /proc/PID/stat; '?' if it cannot be read.
char process_state(int pid) {
    const std::string path = "/proc/" + std::to_string(pid) + "/stat";
    const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    std::array<char, 512> text{};
    const ssize_t size = ::read(fd.get(), text.data(), text.size() - 1);
    if (size <= 0) return '?';
    // The state follows the last ')': the program's name may hold anything.
    const char* name_end = std::strrchr(text.data(), ')');
    return name_end != nullptr && name_end[1] == ' ' ? name_end[2] : '?';
}

bool is_hung_up(int socket) {
    pollfd entry{socket, POLLIN, 0};
    return ::poll(&entry, 1, 0) > 0 && (entry.revents & (POLLHUP | POLLERR)) != 0;
}

}  // namespace

Result<std::unique_ptr<WorkerProcess>> WorkerProcess::spawn(
    EventLoop& loop,
    const std::string& executable,
    const std::vector<std::string>& arguments,
    OnGone on_gone) {
    static schedule::OomWatch oom_watch;
    return spawn(loop, executable, arguments, std::move(on_gone), oom_watch);
}

Result<std::unique_ptr<WorkerProcess>> WorkerProcess::spawn(
    EventLoop& loop,
    const std::string& executable,
    const std::vector<std::string>& arguments,
    OnGone on_gone,
    schedule::OomWatch& oom_watch) {
    std::unique_ptr<WorkerProcess> process(new WorkerProcess(OnGone()));
    const auto judge = [self = process.get(),
                        on_gone = std::move(on_gone),
                        &oom_watch,
                        count_at_start = oom_watch.count()](ProcessEnd end) {
        end.is_out_of_memory =
            end.signal == SIGKILL && !self->was_killed_ && oom_watch.take(count_at_start);
        on_gone(end);
    };
    // Workers have no business with the clients' key.
    AFD_ASSIGN(process->child_,
               ChildProcess::start(
                   loop,
                   {.executable = executable, .arguments = arguments, .withheld = {"AFD_API_KEY"}},
                   judge));
    process->pid_ = process->child_->pid();
    return process;
}

Result<std::unique_ptr<WorkerProcess>> WorkerProcess::adopt(EventLoop& loop,
                                                            int pid,
                                                            int socket,
                                                            OnGone on_gone) {
    std::unique_ptr<WorkerProcess> process(new WorkerProcess(std::move(on_gone)));
    process->pid_ = pid;
    // A pid may get a new owner; a pidfd cannot. It is opened while the socket still shows that the
    // process is there, and the look at the socket comes after (R8).
    process->pidfd_.reset(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    if (!process->pidfd_.valid() || is_hung_up(socket)) {
        return Error{Code::kUnavailable,
                     "the process with pid " + std::to_string(pid) + " is gone already"};
    }
    process->watcher_ =
        std::make_unique<FdWatcher>(loop, process->pidfd_.get(), [owner = process.get()](int) {
            const OnGone on_gone_copy = owner->on_gone_;
            on_gone_copy(ProcessEnd());
        });
    process->watcher_->watch(UV_READABLE);
    return process;
}

void WorkerProcess::kill() {
    was_killed_ = true;
    end_disconnected();
}

void WorkerProcess::end_disconnected() {
    if (child_ != nullptr) {
        child_->kill();
    } else {
        ::syscall(SYS_pidfd_send_signal, pidfd_.get(), SIGKILL, nullptr, 0);
    }
}

bool has_crashed(const ProcessEnd& end) {
    if (!end.is_known) return false;
    switch (end.signal) {
        case 0:
            return end.status != 0 && end.status != kExitAfddGone &&
                   end.status != kExitDamagedFile && end.status != kExitStuckUcx;
        case SIGILL:
        case SIGTRAP:
        case SIGABRT:
        case SIGBUS:
        case SIGFPE:
        case SIGSEGV:
        case SIGSYS:
            return true;
        default:
            // SIGKILL, which is the kernel's where memory is short, SIGTERM and what else others
            // send.
            return false;
    }
}

control::Stop stop_of_process(int pid) {
    switch (process_state(pid)) {
        case 'T':
            return control::STOP_SIGNAL;
        case 't':
            return control::STOP_DEBUGGER;
        default:
            return control::STOP_NONE;
    }
}

}  // namespace afd::daemon
