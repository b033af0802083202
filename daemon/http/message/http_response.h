// SPDX-License-Identifier: Apache-2.0
#pragma once

// HttpResponse: an answer as a whole; and how answers, whole or streamed, become bytes. Boost.Beast
// writes the heads. A stream is chunked; to a client of HTTP/1.0 it goes as it is, and the end of
// the connection ends it.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/http/message/api_error.h"

namespace afd::daemon {

struct HttpResponse {
    using Header = std::pair<std::string, std::string>;  // REQUIRES: no control characters.

    int status = 200;
    std::string content_type = "application/json";
    std::vector<Header> headers;
    std::string body;

    static HttpResponse json(std::string body);
    static HttpResponse of(const ApiError& error);
};

// How an answer goes to its client.
struct ResponseFrame {
    bool is_http_1_1 = true;
    bool closes = false;      // The connection ends behind it.
    bool is_to_head = false;  // To HEAD: with the length of the body, and without it.
};

// A long body becomes `out` itself if that is empty: no second one is made, if it has room for the
// head.
void append_response(HttpResponse response, const ResponseFrame& frame, std::string& out);

// The head of a stream of server-sent events; `headers` besides those that every stream has.
void append_stream_head(const std::vector<HttpResponse::Header>& headers,
                        const ResponseFrame& frame,
                        std::string& out);
// REQUIRES: `bytes` is not empty: an empty chunk is the end.
void append_stream_part(std::string_view bytes, const ResponseFrame& frame, std::string& out);
void append_stream_end(const ResponseFrame& frame, std::string& out);

inline constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

}  // namespace afd::daemon
