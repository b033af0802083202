// SPDX-License-Identifier: Apache-2.0
#pragma once

// A program that a test has started: with a runtime directory and an output file, until its end.

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

namespace afd::test {

// Between two looks at what a test waits for.
inline constexpr std::chrono::milliseconds kPoll{20};

// Its output is appended to the file. All that a test process starts have one weight cache.
pid_t spawn_program(const std::vector<std::string>& arguments,
                    const std::string& runtime_directory,
                    const std::string& output_file);

// 128 + signal of one that was killed.
int exit_status_of(int wait_status);
// Fails the test, and returns -1, if `what` does not end in time.
int wait_for_exit(pid_t pid, const std::string& what);

// What each of its threads is doing in the kernel, for whoever has to find out why it does not go
// on.
std::string threads_of(pid_t pid);

// Empty: there is no such file.
std::string read_text(const std::string& path);

}  // namespace afd::test
