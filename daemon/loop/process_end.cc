// SPDX-License-Identifier: Apache-2.0
#include "daemon/loop/process_end.h"

#include <cstring>

namespace afd::daemon {

std::string ProcessEnd::text() const {
    if (!is_known) return "ended (it was started by hand)";
    if (signal == 0) return "exited with status " + std::to_string(status);
    return "killed by signal " + std::to_string(signal) + " (" + ::strsignal(signal) + ")";
}

}  // namespace afd::daemon
