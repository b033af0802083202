// SPDX-License-Identifier: Apache-2.0
#pragma once

// One request over a connection of its own, and its whole answer; blocks with a deadline.

#include <chrono>
#include <string>

#include "clients/cancellation.h"
#include "clients/http/http_response_reader.h"
#include "clients/http/tcp_peer.h"
#include "proto/status.h"

namespace afd::client {

struct HttpAnswer {
    HttpHead head;
    std::string body;
};

// An answer whose body is larger is cut there, and the rest not read.
inline constexpr size_t kAnswerBytesMax = size_t{4} << 20;

// `request`: head and body as they are sent.
// Errors: kUnavailable, kDataLoss (no HTTP), kDeadlineExceeded, kCancelled.
Result<HttpAnswer> exchange_http(const TcpPeer& peer,
                                 const std::string& request,
                                 std::chrono::steady_clock::time_point deadline,
                                 const Cancellation& cancellation);

}  // namespace afd::client
