// SPDX-License-Identifier: Apache-2.0
#pragma once

// FileLock: an exclusive flock on a file of its own, held until destruction. The kernel releases it
// when the process ends, however it ends.

#include <optional>
#include <string>
#include <utility>

#include "proto/status.h"

namespace afd::model {

class FileLock {
  public:
    // Creates the file where it is missing. Nothing if another process (or another FileLock of this
    // one) holds it. Errors: those of file_error_code().
    static Result<std::optional<FileLock>> try_acquire(const std::string& path);

    FileLock(FileLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    FileLock& operator=(FileLock&& other) noexcept {
        std::swap(fd_, other.fd_);
        return *this;
    }
    ~FileLock();

  private:
    explicit FileLock(int fd) : fd_(fd) {}

    int fd_;
};

}  // namespace afd::model
