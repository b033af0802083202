// SPDX-License-Identifier: Apache-2.0
#pragma once

// HttpTarget: an OpenAI-compatible server as a load run asks it: where, which model, which of its
// two APIs, and which fields beyond the common ones it takes.

#include <chrono>
#include <cstdint>
#include <string>

#include "clients/cancellation.h"
#include "clients/http/http_url.h"
#include "clients/http/tcp_peer.h"
#include "clients/load/workload.h"
#include "proto/status.h"

namespace afd::client {

// What the command line says of it.
struct HttpOptions {
    std::string url;    // Empty: the run is over the socket.
    std::string model;  // Empty: the first that the server lists.
    std::string api_key;
    bool is_chat = false;
};

struct HttpTarget {
    HttpUrl url;
    TcpPeer peer;
    HttpOptions options;  // With the model.
    // What a probe found it to take.
    bool takes_token_ids = true;  // return_token_ids
    bool takes_usage = true;      // stream_options.include_usage
    // What it says of itself; empty or 0: nothing.
    std::string software;  // Its header Server.
    std::string model_root;
    uint32_t context_length = 0;
};

// The bytes of a request, head and body.
std::string models_request(const HttpTarget& target);
std::string completion_request(const HttpTarget& target,
                               const Workload& workload,
                               const PlannedRequest& planned);

// Finds the server, the model, and by one request for a token which fields it takes; blocks.
// Errors: kInvalidArgument, kUnimplemented: the URL or the key. kPermissionDenied,
// kFailedPrecondition: the server is there, and refuses what it is asked (4xx). Others: it cannot
// be used. All with how to mend it.
Result<HttpTarget> inspect_target(const HttpOptions& options,
                                  const Workload& workload,
                                  std::chrono::milliseconds timeout,
                                  const Cancellation& cancellation);

// What the server says is wrong in the body of an answer. If it says it with a list or an object:
// the beginning of the body; if the body has no form that is known: the same with '?' for what is
// not ASCII. One line, at most a few hundred bytes.
std::string error_text(const std::string& body);

}  // namespace afd::client
