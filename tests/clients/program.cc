// SPDX-License-Identifier: Apache-2.0
#include "tests/clients/program.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <thread>

#include "proto/check.h"

namespace afd::test {
namespace {

struct Pipe {
    Pipe() { AFD_ASSERT(pipe2(ends, O_CLOEXEC) == 0, "pipe2: errno %d", errno); }
    ~Pipe() {
        close_end(0);
        close_end(1);
    }
    Pipe(const Pipe&) = delete;
    Pipe& operator=(const Pipe&) = delete;
    void close_end(int end) {
        if (ends[end] >= 0) close(ends[end]);
        ends[end] = -1;
    }
    int ends[2] = {-1, -1};
};

std::vector<char*> pointers(std::vector<std::string>& words) {
    std::vector<char*> result;
    for (std::string& word : words) result.push_back(word.data());
    result.push_back(nullptr);
    return result;
}

// Makes both ends of `pipe` those of a terminal: 0 what a person sees, 1 what the program writes.
void open_terminal(Pipe& pipe) {
    pipe.close_end(0);
    pipe.close_end(1);
    pipe.ends[0] = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    AFD_ASSERT(grantpt(pipe.ends[0]) == 0 && unlockpt(pipe.ends[0]) == 0, "errno %d", errno);
    pipe.ends[1] = open(ptsname(pipe.ends[0]), O_RDWR | O_NOCTTY | O_CLOEXEC);
    AFD_ASSERT(pipe.ends[1] >= 0, "open %s: errno %d", ptsname(pipe.ends[0]), errno);
    const winsize size = {24, 80, 0, 0};
    AFD_ASSERT(ioctl(pipe.ends[0], TIOCSWINSZ, &size) == 0, "TIOCSWINSZ: errno %d", errno);
}

// Whether what was written has been read.
bool is_empty(const Pipe& pipe) {
    int num_left = 0;
    return ioctl(pipe.ends[1], FIONREAD, &num_left) == 0 && num_left == 0;
}

// Appends what is there to `text`; closes the reading end at the end of the stream, which for a
// terminal is an error.
void drain(Pipe& pipe, std::string& text) {
    std::array<char, 4096> buffer;
    const ssize_t n = read(pipe.ends[0], buffer.data(), buffer.size());
    if (n > 0) {
        text.append(buffer.data(), static_cast<size_t>(n));
    } else if (n == 0 || errno != EINTR) {
        pipe.close_end(0);
    }
}

}  // namespace

ProgramResult run_program(const std::vector<std::string>& arguments,
                          const ProgramOptions& options) {
    std::vector<std::string> argument_copy = arguments;
    std::vector<std::string> environment = options.environment;
    for (char** entry = environ; *entry != nullptr; ++entry) environment.emplace_back(*entry);
    const std::vector<char*> argv = pointers(argument_copy);
    const std::vector<char*> envp = pointers(environment);
    Pipe in, out, err;
    if (options.err_is_terminal) open_terminal(err);

    int out_file = -1;
    if (!options.out_file.empty()) {
        out_file = open(options.out_file.c_str(), O_WRONLY | O_CLOEXEC);
        AFD_ASSERT(out_file >= 0, "open %s: errno %d", options.out_file.c_str(), errno);
    }
    const pid_t pid = fork();
    AFD_ASSERT(pid >= 0, "fork: errno %d", errno);
    if (pid == 0) {
        dup2(in.ends[0], STDIN_FILENO);
        dup2(out_file >= 0 ? out_file : out.ends[1], STDOUT_FILENO);
        dup2(err.ends[1], STDERR_FILENO);
        for (const int fd : options.closed_descriptors) close(fd);
        execve(argv[0], argv.data(), envp.data());
        _exit(127);
    }
    if (out_file >= 0) close(out_file);
    out.close_end(1);
    err.close_end(1);
    in.close_end(0);
    // Inputs of tests are shorter than a pipe's buffer, so this does not block.
    [[maybe_unused]] const ssize_t written =
        write(in.ends[1], options.input.data(), options.input.size());
    if (!options.interrupts_input) in.close_end(1);

    ProgramResult result;
    const auto deadline = std::chrono::steady_clock::now() + kProgramTimeout;
    bool interrupted = false;
    bool stopped = !options.stop_when;
    bool signalled = !options.signal_when;
    while (out.ends[0] >= 0 || err.ends[0] >= 0) {
        std::array<pollfd, 2> items = {pollfd{out.ends[0], POLLIN, 0},
                                       pollfd{err.ends[0], POLLIN, 0}};
        poll(items.data(), items.size(), stopped && signalled ? 100 : 10);
        if (items[0].revents != 0) drain(out, result.out);
        if (items[1].revents != 0) drain(err, result.err);
        if (!stopped && options.stop_when()) {
            stopped = true;
            kill(pid, SIGSTOP);
            std::this_thread::sleep_for(options.stopped_for);
            kill(pid, SIGCONT);
        }
        if (!signalled && options.signal_when()) {
            signalled = true;
            kill(pid, options.signal);
        }
        const bool interrupts_now =
            (options.interrupt_when && options.interrupt_when(result.out)) ||
            (options.interrupts_input && is_empty(in));
        if (!interrupted && interrupts_now) {
            interrupted = true;
            kill(pid, SIGINT);
        }
        if (std::chrono::steady_clock::now() > deadline) kill(pid, SIGKILL);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return result;
}

}  // namespace afd::test
