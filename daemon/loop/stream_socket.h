// SPDX-License-Identifier: Apache-2.0
#pragma once

// StreamSocket: a client's stream socket that is read and written without waiting, and what is
// still to be written to it.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "daemon/loop/unique_fd.h"

namespace afd::daemon {

class StreamSocket {
  public:
    static constexpr size_t kWriteBytesMax = size_t{1} << 20;

    explicit StreamSocket(UniqueFd socket) : socket_(std::move(socket)) {}

    int get() const { return socket_.get(); }
    bool is_open() const { return socket_.valid(); }

    // What has arrived, at most as much as `memory` holds, and lies there; empty: nothing now.
    // None: the client has gone or closed its side.
    std::optional<std::string_view> receive(std::span<char> memory);

    // Whoever has something to say appends it here; write() sends it.
    std::string& output() { return output_; }
    size_t unsent_bytes() const { return output_.size() - num_sent_; }
    // Sends what the socket takes now, a call at most kWriteBytesMax: a client that reads as fast
    // as this side writes would keep the others waiting. The socket stays writable then, so whoever
    // watches it writes on. False: the client has gone.
    bool write();
    // Counts what the other end has taken, from some number on: more means that it reads, which
    // write() shows only when a good part of the kernel's buffer is free again.
    int64_t taken_bytes() const;
    std::string_view unsent() const { return std::string_view(output_).substr(num_sent_); }
    // After the last of a long answer. REQUIRES: unsent_bytes() == 0.
    void give_memory_back() { output_ = std::string(); }

    // Drops what is unsent. The descriptor is the caller's to close.
    UniqueFd release();

  private:
    UniqueFd socket_;
    std::string output_;
    size_t num_sent_ = 0;      // Bytes at the front of output_.
    int64_t num_written_ = 0;  // Bytes that were given to the kernel, ever.
};

}  // namespace afd::daemon
