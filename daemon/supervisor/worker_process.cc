// SPDX-License-Identifier: Apache-2.0
#include "daemon/supervisor/worker_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

namespace afd::daemon {

namespace {

std::string describe_exit(int64_t status, int signal) {
    if (signal == 0) return "exited with status " + std::to_string(status);
    return "killed by signal " + std::to_string(signal) + " (" + ::strsignal(signal) + ")";
}

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

// Given to libuv; outlives the WorkerProcess until libuv returns it.
struct WorkerProcess::Child {
    uv_process_t handle;
    WorkerProcess* owner;
};

Result<std::unique_ptr<WorkerProcess>> WorkerProcess::spawn(
    EventLoop& loop,
    const std::string& executable,
    const std::vector<std::string>& arguments,
    OnGone on_gone) {
    std::unique_ptr<WorkerProcess> process(new WorkerProcess(std::move(on_gone)));
    std::vector<char*> argv = {const_cast<char*>(executable.c_str())};
    for (const std::string& argument : arguments) {
        argv.push_back(const_cast<char*>(argument.c_str()));
    }
    argv.push_back(nullptr);
    std::array<uv_stdio_container_t, 3> stdio{};
    stdio[0].flags = UV_IGNORE;
    for (int i = 1; i < 3; ++i) {
        // A worker's log goes where afdd's goes.
        stdio[static_cast<size_t>(i)].flags = UV_INHERIT_FD;
        stdio[static_cast<size_t>(i)].data.fd = i;
    }
    uv_process_options_t options{};
    options.file = executable.c_str();
    options.args = argv.data();
    options.stdio = stdio.data();
    options.stdio_count = static_cast<int>(stdio.size());
    options.exit_cb = [](uv_process_t* handle, int64_t status, int signal) {
        WorkerProcess* owner = static_cast<Child*>(handle->data)->owner;
        if (owner == nullptr) return;
        // The callback may destroy the owner, and with it the stored function.
        const OnGone on_gone_copy = owner->on_gone_;
        on_gone_copy(describe_exit(status, signal));
    };
    process->child_ = new Child{{}, process.get()};
    process->child_->handle.data = process->child_;
    const int status = uv_spawn(loop.uv(), &process->child_->handle, &options);
    if (status != 0) {
        return Error{status == UV_ENOENT ? Code::kNotFound : Code::kUnavailable,
                     "cannot start '" + executable + "': " + uv_strerror(status)};
    }
    process->pid_ = process->child_->handle.pid;
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
            on_gone_copy("ended (it was started by hand)");
        });
    process->watcher_->watch(UV_READABLE);
    return process;
}

WorkerProcess::~WorkerProcess() {
    if (child_ == nullptr) return;
    child_->owner = nullptr;
    uv_close(reinterpret_cast<uv_handle_t*>(&child_->handle),
             [](uv_handle_t* closed) { delete static_cast<Child*>(closed->data); });
}

void WorkerProcess::kill() {
    if (child_ != nullptr) {
        uv_process_kill(&child_->handle, SIGKILL);
    } else {
        ::syscall(SYS_pidfd_send_signal, pidfd_.get(), SIGKILL, nullptr, 0);
    }
}

bool is_process_stopped(int pid) {
    const char state = process_state(pid);
    return state == 'T' || state == 't';
}

bool is_process_stopped_by_signal(int pid) {
    return process_state(pid) == 'T';
}

}  // namespace afd::daemon
