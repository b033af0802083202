// SPDX-License-Identifier: Apache-2.0
#pragma once

// Standard output that did not get through: a program whose results nobody could read has failed.

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <string>

namespace afd {

// Writes what is left of standard output, as the last thing that a program does. Returns what to
// say if not all that was ever printed got through; empty: it did. REQUIRES: std::cout is
// synchronised with stdio, as it is unless it was told otherwise.
inline std::string finish_standard_output() {
    const bool is_flushed = std::fflush(stdout) == 0;
    if (is_flushed && std::ferror(stdout) == 0 && std::cout.good()) return "";
    // The reason of an earlier failure is gone.
    const std::string why = is_flushed ? "not all of it got through" : std::strerror(errno);
    return "cannot write standard output: " + why;
}

// finish_standard_output() of a program that says its errors on standard error, after its name.
// Returns what it ends with: `exit_code`, or 1 if that was 0 and something is lost.
inline int end_standard_output(const char* program, int exit_code) {
    constexpr int kExitFailed = 1;
    const std::string lost = finish_standard_output();
    if (lost.empty()) return exit_code;
    std::fprintf(stderr, "%s: %s\n", program, lost.c_str());
    return exit_code == 0 ? kExitFailed : exit_code;
}

}  // namespace afd
