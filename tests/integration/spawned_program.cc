// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/spawned_program.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "tests/integration/instance.h"

namespace afd::test {

std::string threads_of(pid_t pid) {
    std::string text = "pid " + std::to_string(pid);
    const std::string tasks = "/proc/" + std::to_string(pid) + "/task";
    std::error_code error;
    for (const auto& task : std::filesystem::directory_iterator(tasks, error)) {
        const std::string stat = read_text(task.path() / "stat");
        const size_t name_end = stat.rfind(')');
        if (name_end == std::string::npos) continue;
        text += ", " + stat.substr(0, name_end + 3) + " in " + read_text(task.path() / "wchan");
    }
    return text;
}

pid_t spawn_program(const std::vector<std::string>& arguments,
                    const std::string& runtime_directory,
                    const std::string& output_file) {
    // Of all instances of this test process: the weights are packed once.
    static const std::string cache_directory = make_directory();
    const pid_t pid = fork();
    if (pid != 0) return pid;
    setenv("XDG_RUNTIME_DIR", runtime_directory.c_str(), 1);
    setenv("XDG_CACHE_HOME", cache_directory.c_str(), 1);
    const int output = open(output_file.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
    std::vector<char*> argv;
    for (const std::string& argument : arguments)
        argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    execv(argv[0], argv.data());
    _exit(127);
}

int exit_status_of(int wait_status) {
    return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
}

int wait_for_exit(pid_t pid, const std::string& what) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (std::chrono::steady_clock::now() < deadline) {
        int wait_status = 0;
        if (waitpid(pid, &wait_status, WNOHANG) == pid) return exit_status_of(wait_status);
        std::this_thread::sleep_for(kPoll);
    }
    ADD_FAILURE() << what << " does not end: " << threads_of(pid);
    return -1;
}

std::string read_text(const std::string& path) {
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
}

}  // namespace afd::test
