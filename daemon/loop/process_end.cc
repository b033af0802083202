// SPDX-License-Identifier: Apache-2.0
#include "daemon/loop/process_end.h"

#include <cstring>

namespace afd::daemon {

std::string ProcessEnd::text() const {
    if (!is_known) return "ended (it was started by hand)";
    if (signal == 0) return "exited with status " + std::to_string(status);
    const std::string killed =
        "killed by signal " + std::to_string(signal) + " (" + ::strsignal(signal) + ")";
    if (!is_out_of_memory) return killed;
    return killed +
           ": the kernel had no memory left for it (oom_kill of its control group); raise the "
           "group's limit, or lower kv_tokens or the number of workers";
}

}  // namespace afd::daemon
