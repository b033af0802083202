// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the client programs tell a script by their exit code; documented in their --help.

namespace afd::client {

enum ClientExit : int {
    kExitOk = 0,
    // A request failed or was refused, or standard output could not be written.
    kExitFailed = 1,
    kExitUsage = 2,      // The command line is wrong.
    kExitSaturated = 4,  // afd-load --strict: the client itself was the bottleneck.
    // afdd cannot be reached or does not answer; a server of the OpenAI API: nor answers with 5xx.
    kExitUnreachable = 5,
    kExitInterrupted = 130,
};

}  // namespace afd::client
