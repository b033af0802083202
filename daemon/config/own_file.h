// SPDX-License-Identifier: Apache-2.0
#pragma once

// A file that is taken only from somebody who may give it: keys, certificates, the configuration.
// What is judged is what was opened, and that is what is read: a name may stand for another file a
// moment later. Who may give which file, and how a failure is said, is for the caller.

#include <sys/stat.h>

#include <cstddef>
#include <functional>
#include <string>

#include "proto/status.h"

namespace afd::daemon {

struct OwnFileRules {
    // Of what was opened, which may be a directory or a device. Errors: why it is not read.
    std::function<Result<>(const struct stat& status)> check;
    // The error for a file that cannot be opened or read; `error` is that of the system call, or
    // EAGAIN for one that became shorter meanwhile.
    std::function<Error(int error)> unreadable;
};

// Its first `bytes_max` bytes, or all of them if it has fewer. Never waits for the other end of a
// pipe. The bytes are at one place in memory only, so that who overwrites them has overwritten all.
// Errors: those of `rules`.
Result<std::string> read_own_file(const std::string& path,
                                  size_t bytes_max,
                                  const OwnFileRules& rules);

}  // namespace afd::daemon
