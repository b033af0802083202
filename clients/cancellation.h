// SPDX-License-Identifier: Apache-2.0
#pragma once

// Cancellation: a wish to stop, made by any thread or by a signal handler, and seen by a thread
// that polls (an eventfd that is never read, so it stays readable).

#include "proto/status.h"

namespace afd::client {

class Cancellation {
  public:
    static Result<Cancellation> create();

    Cancellation(Cancellation&& other) noexcept;
    Cancellation& operator=(Cancellation&& other) noexcept;
    ~Cancellation();

    // Async-signal-safe; may be called more than once.
    void request() const;
    bool requested() const;

    // Becomes readable with the first request() and stays so.
    int fd() const { return fd_; }

  private:
    explicit Cancellation(int fd) : fd_(fd) {}

    int fd_ = -1;
};

}  // namespace afd::client
