// SPDX-License-Identifier: Apache-2.0
#pragma once

// HttpResponseReader: the bytes that a server sends, as HTTP/1.1 responses, one after the other.
// Boost.Beast parses. The body comes in parts, as it arrives and without the marks of its chunks.
// Responses of the kind 1xx, which announce another, are passed over.
// Pure: it knows no socket and no clock.

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "proto/status.h"

namespace afd::client {

struct HttpHead {
    int status = 0;
    std::string content_type;  // In lower case.
    std::string server;
    bool keeps_alive = false;  // The connection may be used again after the body.
};

class HttpResponseReader {
  public:
    static constexpr size_t kHeaderBytesMax = size_t{64} << 10;

    HttpResponseReader();
    ~HttpResponseReader();
    HttpResponseReader(const HttpResponseReader&) = delete;
    HttpResponseReader& operator=(const HttpResponseReader&) = delete;

    // Errors of these: kDataLoss: the bytes are no HTTP; nothing can be read behind them.
    Result<> append(std::string_view bytes);
    // The server has closed its side. Errors: also kUnavailable: in the middle of a response.
    Result<> end();

    bool has_head() const;
    // REQUIRES: has_head().
    HttpHead head() const;
    // What has arrived of the body since the last call.
    std::string take_body();
    // The response is complete.
    bool is_done() const;
    // The bytes that follow are another response. REQUIRES: is_done().
    void next();

  private:
    struct Parser;
    Result<> parse();

    std::unique_ptr<Parser> parser_;
    std::string in_;  // Not parsed yet.
};

}  // namespace afd::client
