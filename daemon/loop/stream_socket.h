// SPDX-License-Identifier: Apache-2.0
#pragma once

// StreamSocket: a client's stream socket that is read and written without waiting, and what is
// still to be written to it.

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "daemon/loop/unique_fd.h"

namespace afd::daemon {

class StreamSocket {
  public:
    explicit StreamSocket(UniqueFd socket) : socket_(std::move(socket)) {}

    int get() const { return socket_.get(); }
    bool is_open() const { return socket_.valid(); }

    // What has arrived, at most as much as `memory` holds, and lies there; empty: nothing now.
    // None: the client has gone or closed its side.
    std::optional<std::string_view> receive(std::span<char> memory);

    // Whoever has something to say appends it here; write() sends it.
    std::string& output() { return output_; }
    size_t unsent_bytes() const { return output_.size() - num_sent_; }
    // Sends what the socket takes now. False: the client has gone.
    bool write();
    std::string_view unsent() const { return std::string_view(output_).substr(num_sent_); }
    // After the last of a long answer. REQUIRES: unsent_bytes() == 0.
    void give_memory_back() { output_ = std::string(); }

    // Drops what is unsent. The descriptor is the caller's to close.
    UniqueFd release();

  private:
    UniqueFd socket_;
    std::string output_;
    size_t num_sent_ = 0;  // Bytes at the front of output_.
};

}  // namespace afd::daemon
