// SPDX-License-Identifier: Apache-2.0
#pragma once

// ProcessEnd: how a process came to its end, as far as this one knows.

#include <cstdint>
#include <string>

namespace afd::daemon {

struct ProcessEnd {
    bool is_known = false;  // It was a child of this process; of another nobody says more.
    int64_t status = 0;     // That it exited with, unless a signal killed it.
    int signal = 0;         // That killed it; 0: none.
    // SIGKILL came from the kernel, which had no memory left for this process's control group.
    bool is_out_of_memory = false;

    // "killed by signal 9 (Killed)".
    std::string text() const;
};

}  // namespace afd::daemon
