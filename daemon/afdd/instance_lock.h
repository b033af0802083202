// SPDX-License-Identifier: Apache-2.0
#pragma once

// InstanceLock: at most one afdd per instance name. An flock'ed file in the runtime directory that
// holds the owner's pid; the kernel frees it when its process ends, however it ends. The file
// stays: removing it would let two processes lock two files of one name.

#include <string>

#include "daemon/loop/unique_fd.h"
#include "proto/status.h"

namespace afd::daemon {

class InstanceLock {
  public:
    // Errors: kAlreadyExists naming the pid that holds it; kPermissionDenied.
    static Result<InstanceLock> acquire(const std::string& path, const std::string& instance);

  private:
    explicit InstanceLock(UniqueFd fd) : fd_(std::move(fd)) {}
    UniqueFd fd_;
};

}  // namespace afd::daemon
