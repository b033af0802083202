// SPDX-License-Identifier: Apache-2.0
#pragma once

// Program: a child process whose output is collected; what it says and how it exits is the test's
// business. A child that has not ended after kProgramTimeout is killed, which shows as its signal.

#include <signal.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace afd::test {

inline constexpr std::chrono::seconds kProgramTimeout{60};

struct ProgramResult {
    int exit_code = -1;  // 128 + signal if one ended it.
    std::string out;
    std::string err;
};

struct ProgramOptions {
    std::vector<std::string> environment;  // "NAME=value", added to the caller's.
    std::string input;                     // Its standard input.
    std::string out_file;                  // Its standard output goes there instead.
    // Called after each new output with all of it so far; true sends SIGINT (once).
    std::function<bool(const std::string& out)> interrupt_when;
    // Asked every 10 ms; once true, the program gets `signal` (once).
    std::function<bool()> signal_when;
    int signal = SIGINT;
    // Asked every 10 ms; once true, the program is stopped (SIGSTOP) for `stopped_for`.
    std::function<bool()> stop_when;
    std::chrono::milliseconds stopped_for{0};
    // What of 0, 1 and 2 it is started without.
    std::vector<int> closed_descriptors{};
    // Standard error is a terminal of 80 columns.
    bool err_is_terminal = false;
    // `input` has no end, and once all of it has been read, the program gets SIGINT (once).
    bool interrupts_input = false;
};

// Runs `arguments[0]`, a path, to its end.
ProgramResult run_program(const std::vector<std::string>& arguments,
                          const ProgramOptions& options = {});

}  // namespace afd::test
