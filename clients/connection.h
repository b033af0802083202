// SPDX-License-Identifier: Apache-2.0
#pragma once

// Connection: one stream of Request and Response messages (proto/client.proto) to afdd, for
// programs with a poll loop of their own and many requests at once. Nothing here blocks except
// connect(). The blocking client over it is clients/afd_client.h.
//
// Use, by one thread:
//   poll fd() for events(); on POLLOUT flush(); on POLLIN (or POLLHUP, POLLERR) receive().
//
// Invariants:
// (1) A request is queued whole or not at all; requests arrive in the order of send().
// (2) After the first error of a method every later call returns the same error.
// (3) Responses that arrived before the end of the stream are delivered before its error.

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "clients/endpoint.h"
#include "proto/client.pb.h"
#include "proto/frame.h"
#include "proto/status.h"

namespace afd::client {

using Clock = std::chrono::steady_clock;

// `timeout` from now; the end of time for one that the clock cannot hold, as milliseconds::max().
inline Clock::time_point deadline_after(std::chrono::milliseconds timeout) {
    const Clock::time_point now = Clock::now();
    const auto most = std::chrono::floor<std::chrono::milliseconds>(Clock::time_point::max() - now);
    if (timeout >= most) return Clock::time_point::max();
    return now + std::max(timeout, std::chrono::milliseconds::zero());
}

class Connection {
  public:
    // Errors: kNotFound (no such socket), kUnavailable (nobody listens), kPermissionDenied,
    // kDeadlineExceeded (afdd does not accept), each with how to mend it.
    static Result<Connection> connect(const Endpoint& endpoint, Clock::time_point deadline);

    Connection(Connection&& other) noexcept;
    Connection& operator=(Connection&& other) noexcept;
    // Closes the socket; afdd then cancels what is in flight.
    ~Connection();

    int fd() const { return fd_; }

    // POLLIN, and POLLOUT while queued bytes wait for room in the socket.
    short events() const;

    // Queues `request` and writes what the socket takes.
    // REQUIRES: request_id unique among the requests in flight.
    // Errors: kInvalidArgument if the message exceeds kFrameBytesMax (the connection lives on),
    // kUnavailable if afdd is gone.
    Result<> send(const Request& request);

    // Writes queued bytes as far as the socket takes them. Errors: kUnavailable.
    Result<> flush();

    // Appends the responses that have arrived to `responses`.
    // Errors: kUnavailable if afdd closed the connection, kDataLoss if its bytes are no responses,
    // and afdd's own error for the whole connection (with request_id 0).
    Result<> receive(std::vector<Response>& responses);

    // Whether it has ended: by afdd's end or error, or because the caller gave up.
    bool is_lost() const { return error_.has_value(); }

    // The caller has lost its patience: kUnavailable with `why`, which is (2)'s first error.
    afd::Error give_up(const std::string& why) { return fail(Code::kUnavailable, why); }

  private:
    Connection(int fd, std::string peer) : fd_(fd), peer_(std::move(peer)) {}

    afd::Error fail(Code code, const std::string& what);
    Result<> parse_frames(std::vector<Response>& responses);

    int fd_ = -1;
    std::string peer_;  // The socket path, for messages.
    FrameReader reader_;
    std::string unsent_;   // Empty once all of it is sent.
    size_t num_sent_ = 0;  // Of its bytes.
    std::optional<afd::Error> error_;
};

}  // namespace afd::client
