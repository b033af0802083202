// SPDX-License-Identifier: Apache-2.0
#pragma once

// Exit codes of afdd, the same in --help and in docs/operations.md.

#include <array>

#include "proto/status.h"

namespace afd::daemon {

enum class ExitCode : int {
    kOk = 0,
    kUsage = 2,
    kModel = 3,
    kSharedMemory = 4,
    kInUse = 5,
    kDrainTimedOut = 6,
    kWorkerFailed = 7,
};

struct ExitCodeText {
    ExitCode code;
    const char* text;
    // Whether a service manager is to start afdd again; else it would fail as before, or was asked
    // to end. The units in deploy/ say so; this is for the test that compares them.
    bool is_to_restart;
};

inline constexpr std::array<ExitCodeText, 7> kExitCodes = {{
    {ExitCode::kOk, "ended as asked, everything accepted was finished", false},
    {ExitCode::kUsage,
     "the command line, environment, configuration file or limit of open files is wrong",
     false},
    {ExitCode::kModel, "the model directory is missing, incomplete or not supported", false},
    {ExitCode::kSharedMemory, "memory for weights, KV caches or segments cannot be had", true},
    {ExitCode::kInUse,
     "another afdd holds the instance name, or an address or socket is in use",
     true},
    {ExitCode::kDrainTimedOut, "asked to end; what was not finished in time was cancelled", false},
    {ExitCode::kWorkerFailed, "a worker fails repeatedly before it is ready", true},
}};

// Why afdd could not take a name, an address or a socket: another has it, or it is configured
// wrong.
constexpr ExitCode exit_code_of_taking(Code why) {
    return why == Code::kAlreadyExists ? ExitCode::kInUse : ExitCode::kUsage;
}

}  // namespace afd::daemon
