// SPDX-License-Identifier: Apache-2.0
#pragma once

// HttpUrl: where an OpenAI-compatible server is: "http://HOST[:PORT][/PREFIX][/v1]". Pure: it asks
// no name server.

#include <cstdint>
#include <string>
#include <string_view>

#include "proto/status.h"

namespace afd::client {

struct HttpUrl {
    std::string host;  // A name, an IPv4 address, or an IPv6 address without its brackets.
    uint16_t port = 80;
    std::string prefix;  // What stands before /v1: empty, or "/" and more, without a "/" behind.

    // For the header Host and for messages: "[::1]:8000".
    std::string authority() const;
    // Of an endpoint under /v1: "/v1/models".
    std::string path(std::string_view endpoint) const {
        return prefix + "/v1/" + std::string(endpoint);
    }
};

// Errors: kInvalidArgument with what to write instead; kUnimplemented: https.
Result<HttpUrl> parse_http_url(const std::string& text);

}  // namespace afd::client
