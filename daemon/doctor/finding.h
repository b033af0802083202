// SPDX-License-Identifier: Apache-2.0
#pragma once

// Finding: what the doctor has to say of one subject.

#include <string>
#include <vector>

#include "daemon/program/exit_codes.h"

namespace afd::daemon {

struct Finding {
    enum class Level { kOk, kWarning, kFailed };  // Failed: afdd would not start.

    std::string subject;  // "cpu", "shm", ...
    Level level = Level::kOk;
    std::string text;
    std::string remedy;                            // Empty if it is ok.
    ExitCode exit_code = ExitCode::kSharedMemory;  // If it failed: with which afdd would end.
};

// That of an afdd for which all of this is so: of several that failed, that of the one to which the
// start comes first, which is not the first that is printed.
ExitCode exit_code_of(const std::vector<Finding>& findings);

// A line for each, with the remedy below it; or a JSON array.
std::string findings_text(const std::vector<Finding>& findings);
std::string findings_json(const std::vector<Finding>& findings);

}  // namespace afd::daemon
