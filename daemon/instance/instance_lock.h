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
    // The log says if the lock could not be signed, which keeps nobody from having it.
    // Errors: kAlreadyExists naming the pid that holds it; kPermissionDenied.
    static Result<InstanceLock> acquire(const std::string& path, const std::string& instance);
    // The lock of another process, which goes on having it, too. sign() says who is to be asked.
    static InstanceLock shared(UniqueFd fd, const std::string& path) {
        return InstanceLock(std::move(fd), path);
    }

    // Writes the pid of this process into the file, for the message to others.
    // Errors: kUnavailable: it cannot be written; then the file names nobody.
    Result<> sign() const;
    int fd() const { return fd_.get(); }

  private:
    InstanceLock(UniqueFd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}
    UniqueFd fd_;
    std::string path_;
};

}  // namespace afd::daemon
