// SPDX-License-Identifier: Apache-2.0
#pragma once

// WorkerEnd: how the process of a worker came to its end, for whoever judges what it worked on.

#include <string>

namespace afd::daemon {

struct WorkerEnd {
    // By a fault of its own: it crashed, or was killed for what it did: hung, or sent bad bytes.
    // Never: a signal from outside, that of a kernel without memory included; an end that was asked
    // for; a lost connection to its host; an end of which nobody says how it came.
    bool is_fault = false;
    std::string how;  // "attention worker 0 killed by signal 6 (Aborted)".
};

}  // namespace afd::daemon
