// SPDX-License-Identifier: Apache-2.0
#pragma once

// RequestReader: the bytes of a connection, as HTTP/1.1 requests. Boost.Beast parses; this decides
// what is too large and refuses what Beast takes and a careful server does not: folded header
// lines, an HTTP/1.1 request without Host, a Transfer-Encoding that is not chunks alone, a hundred
// headers and more.
//
// In a body of chunks, the line of each chunk and all that stands behind the last one (trailers)
// have the limits of a header. Trailers are read over: they are no headers of the request.
//
// Requests come out one after the other, in the order of the bytes; what lies behind one waits. A
// connection between requests holds no memory here. Pure: it knows no socket and no clock.

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "daemon/http/message/api_error.h"
#include "daemon/http/message/http_request.h"

namespace afd::daemon {

class RequestReader {
  public:
    static constexpr size_t kHeaderBytesMax = size_t{16} << 10;  // With the request line.
    static constexpr size_t kHeadersMax = 100;

    explicit RequestReader(size_t body_bytes_max);
    ~RequestReader();
    RequestReader(const RequestReader&) = delete;
    RequestReader& operator=(const RequestReader&) = delete;

    void append(std::string_view bytes);

    // The next whole request, or nothing: more bytes are needed, or refusal() says why there will
    // be none.
    std::optional<HttpRequest> next();
    // What is wrong with the bytes. Then nothing more is read: nobody knows where a request begins.
    const std::optional<ApiError>& refusal() const { return refusal_; }

    // Once for a request whose client waits for "100 Continue" before it sends the body.
    bool take_continue();

    // Whether a request has begun whose bytes are not kept as they were. If not, `unread` are all
    // bytes behind the last request.
    bool is_within_request() const { return parser_ != nullptr; }
    std::string_view unread() const { return in_; }

    // Bytes that are kept: of half a request, and of those behind it.
    size_t held_bytes() const;
    // Forgets everything.
    void clear();

  private:
    struct Parser;

    bool begin();
    void parse();
    // How many of the bytes are taken; none: it is refused.
    std::optional<size_t> put(std::string_view bytes);
    void take_header();
    HttpRequest take();
    void refuse(int status, std::string code, std::string message);

    const size_t body_bytes_max_;
    std::string in_;
    size_t num_scanned_ = 0;          // Of in_, for the end of a header.
    std::unique_ptr<Parser> parser_;  // Of the request whose header is complete.
    std::optional<ApiError> refusal_;
};

}  // namespace afd::daemon
