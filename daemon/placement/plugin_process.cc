// SPDX-License-Identifier: Apache-2.0
#include "daemon/placement/plugin_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <optional>
#include <span>

#include "proto/failure.h"
#include "proto/write_all.h"

namespace afd::daemon {
namespace {

using Clock = std::chrono::steady_clock;

// Where the child writes: behind the standard streams.
constexpr int kAnswerFd = 3;

// Before the bytes of an answer, or of the message of an error.
struct AnswerHead {
    uint32_t is_ok = 0;
    uint32_t code = 0;
    uint64_t num_bytes = 0;
};

struct Pipe {
    int read_end = -1;
    int write_end = -1;

    ~Pipe() {
        close_end(read_end);
        close_end(write_end);
    }
    static void close_end(int& end) {
        if (end >= 0) ::close(end);
        end = -1;
    }
};

// What of this process is the child's business no more: handlers that would write to closed files,
// masks of the thread that asks, and every file that is open here.
void leave_parent(int write_end, pid_t parent) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);  // It ended before.
    for (int signal = 1; signal < NSIG; ++signal) ::signal(signal, SIG_DFL);
    sigset_t none;
    sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    ::dup2(write_end, kAnswerFd);
    ::fcntl(kAnswerFd, F_SETFD, FD_CLOEXEC);
    ::close_range(kAnswerFd + 1, ~0U, 0);
}

[[noreturn]] void run_child(int write_end,
                            pid_t parent,
                            const std::function<Result<std::string>()>& ask) {
    leave_parent(write_end, parent);
    const Result<std::string> answer = ask();
    const std::string& bytes = answer.ok() ? answer.value() : answer.error().message;
    const AnswerHead head{.is_ok = answer.ok() ? 1U : 0U,
                          .code = answer.ok() ? 0U : static_cast<uint32_t>(answer.error().code),
                          .num_bytes = bytes.size()};
    const bool is_written = write_all(kAnswerFd, std::as_bytes(std::span(&head, 1))) &&
                            write_all(kAnswerFd, std::as_bytes(std::span(bytes)));
    if (!is_written) ::_exit(1);
    // What the library has printed. Nothing else of it or of the parent is to be tidied up here.
    std::fflush(nullptr);
    ::_exit(0);
}

int ms_until(Clock::time_point deadline) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    return static_cast<int>(std::max<int64_t>(0, left.count()));
}

bool is_whole(const std::string& got) {
    AnswerHead head;
    if (got.size() < sizeof(head)) return false;
    std::memcpy(&head, got.data(), sizeof(head));
    return got.size() - sizeof(head) >= head.num_bytes;
}

// More than any answer; a library that has spoilt its own may write for ever.
constexpr size_t kAnswerBytesMax = size_t{64} << 20;

// Reads until the answer is whole, nobody can write any more, it is late, or too long.
std::string read_answer(int read_end, Clock::time_point deadline) {
    std::string got;
    while (!is_whole(got) && got.size() <= kAnswerBytesMax) {
        pollfd readable{.fd = read_end, .events = POLLIN, .revents = 0};
        const int num_ready = ::poll(&readable, 1, ms_until(deadline));
        if (num_ready < 0 && errno == EINTR) continue;
        if (num_ready <= 0) break;
        char bytes[65536];
        const ssize_t size = ::read(read_end, bytes, sizeof(bytes));
        if (size < 0 && errno == EINTR) continue;
        if (size <= 0) break;
        got.append(bytes, static_cast<size_t>(size));
    }
    return got;
}

// The status of the child as waitpid() tells it. Nothing: it did not end in time, and is killed.
std::optional<int> end_of(pid_t child, Clock::time_point deadline) {
    int status = 0;
    while (true) {
        const pid_t ended = ::waitpid(child, &status, WNOHANG);
        if (ended == child) return status;
        if (ended < 0 && errno != EINTR) return 0;
        if (ms_until(deadline) == 0) break;
        ::poll(nullptr, 0, 1);
    }
    ::kill(child, SIGKILL);
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return std::nullopt;
}

Error no_answer(const std::string& path, std::optional<int> status, uint64_t deadline_ms) {
    if (!status) {
        return failed_precondition("the plugin '{}' did not answer in {:.3g} s",
                                   with(path, static_cast<double>(deadline_ms) / 1000));
    }
    if (WIFSIGNALED(*status)) {
        return failed_precondition("the plugin '{}' crashed (signal {})",
                                   with(path, WTERMSIG(*status)));
    }
    return failed_precondition(
        "the plugin '{}' ended its process with status {} instead of "
        "answering",
        with(path, WEXITSTATUS(*status)));
}

}  // namespace

Result<std::string> ask_in_process(const std::string& path,
                                   const std::function<Result<std::string>()>& ask,
                                   uint64_t deadline_ms) {
    const Clock::time_point deadline = Clock::now() + std::chrono::milliseconds(deadline_ms);
    Pipe pipe;
    int ends[2] = {-1, -1};
    const bool has_pipe = ::pipe2(ends, O_CLOEXEC) == 0;
    pipe.read_end = ends[0];
    pipe.write_end = ends[1];
    // What waits in a buffer here would be written by both.
    std::fflush(nullptr);
    const pid_t parent = ::getpid();
    const pid_t child = has_pipe ? ::fork() : -1;
    if (child < 0) {
        return unavailable("the plugin '{}' cannot be asked: no process for it: {}",
                           with(path, std::strerror(errno)));
    }
    if (child == 0) run_child(pipe.write_end, parent, ask);
    Pipe::close_end(pipe.write_end);
    const std::string got = read_answer(pipe.read_end, deadline);
    if (!is_whole(got)) return no_answer(path, end_of(child, deadline), deadline_ms);
    // It has said all that it had to say: it has nothing left to do but to end.
    end_of(child, deadline);
    AnswerHead head;
    std::memcpy(&head, got.data(), sizeof(head));
    std::string bytes = got.substr(sizeof(head), head.num_bytes);
    if (head.is_ok != 0) return bytes;
    // What is no code was not written by ours.
    const bool is_code = head.code > 0 && head.code <= static_cast<uint32_t>(Code::kUnimplemented);
    return Error{is_code ? static_cast<Code>(head.code) : Code::kFailedPrecondition,
                 std::move(bytes)};
}

}  // namespace afd::daemon
