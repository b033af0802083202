// SPDX-License-Identifier: Apache-2.0
#pragma once

// HttpRequest: one whole request of a client, in the words that afdd looks at. Every field is the
// client's and nothing in it is believed.

#include <string>

namespace afd::daemon {

struct HttpRequest {
    std::string method;  // "GET"; as sent.
    std::string path;    // Of the target, before '?': "/v1/models"; "*": the server as a whole.
    std::string query;   // Behind '?'; empty: none.
    std::string host;    // Of the target if it names one, else the header.
    std::string authorization;
    std::string content_type;
    std::string accept;
    std::string origin;  // The page that a browser sends this from; empty: no page.
    // An OPTIONS has these two: by them a browser asks what a page of another site may send.
    std::string asked_method;
    std::string asked_headers;
    std::string request_id;  // X-Request-Id.
    std::string last_event_id;
    std::string body;
    bool has_content_encoding = false;
    bool is_http_1_1 = true;  // Else 1.0.
    bool keeps_alive = true;  // The connection may go on after the answer.
};

}  // namespace afd::daemon
