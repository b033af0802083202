// SPDX-License-Identifier: Apache-2.0
#pragma once

// Standard output that did not get through: a program whose results nobody could read has failed.
// Its exit code and where it says so are its own.

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

}  // namespace afd
