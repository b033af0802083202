// SPDX-License-Identifier: Apache-2.0
#pragma once

// What Prometheus' own linter says of an exposition.

#include <sys/wait.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "tests/temporary_directory.h"

namespace afd::test {

struct Verdict {
    int exit_status = -1;  // 0: nothing to say; 1: cannot be parsed; 3: against a convention.
    std::string output;
};

inline Verdict promtool_check(const std::string& exposition) {
    const TemporaryDirectory directory;
    std::ofstream(directory.path("metrics")) << exposition;
    const std::string command =
        AFD_PROMTOOL " check metrics < '" + directory.path("metrics") + "' 2>&1";
    Verdict verdict;
    FILE* output = ::popen(command.c_str(), "r");
    if (output == nullptr) return verdict;
    char buffer[4096];
    for (size_t size = 0; (size = std::fread(buffer, 1, sizeof(buffer), output)) > 0;) {
        verdict.output.append(buffer, size);
    }
    const int status = ::pclose(output);
    if (WIFEXITED(status)) verdict.exit_status = WEXITSTATUS(status);
    return verdict;
}

}  // namespace afd::test
