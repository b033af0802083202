// SPDX-License-Identifier: Apache-2.0
#pragma once

// ClientConnection: one client's socket: frames in, frames out (client.proto).
//
// Bytes that are no valid frames cost only this connection: it is told why, and closed. Answers
// are queued by send() and leave with flush(), so that one batch of tokens is one write; what the
// client does not read stays queued, and the owner decides how much of that it accepts.

#include <memory>
#include <string>

#include "daemon/loop/event_loop.h"
#include "daemon/loop/unique_fd.h"
#include "proto/client.pb.h"
#include "proto/frame.h"

namespace afd::daemon {

class ClientConnection;

class ClientHandler {
  public:
    virtual ~ClientHandler() = default;
    virtual void on_request(ClientConnection& connection, const client::Request& request) = 0;
    // The connection is closed, by either side; it may be destroyed, but not within this call.
    virtual void on_closed(ClientConnection& connection) = 0;
    // Some queued bytes have left after they had to wait.
    virtual void on_progress(ClientConnection& connection) = 0;
};

class ClientConnection {
  public:
    ClientConnection(EventLoop& loop, UniqueFd socket, ClientHandler& handler);

    // Queues one answer; nothing happens on a closed connection.
    void send(const client::Response& response);
    // Writes what the socket takes now.
    void flush();
    void close();

    bool is_closed() const { return closed_; }
    size_t queued_bytes() const { return out_.size() - out_sent_; }

  private:
    void on_ready(int events);
    void read();
    void refuse_bytes(const std::string& why);

    UniqueFd socket_;
    ClientHandler& handler_;
    FrameReader reader_;
    std::string out_;
    size_t out_sent_ = 0;
    bool closed_ = false;
    std::unique_ptr<FdWatcher> watcher_;
};

}  // namespace afd::daemon
