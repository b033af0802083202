// SPDX-License-Identifier: Apache-2.0
#pragma once

// What is asked of every request before an endpoint sees it.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/http/http_services.h"
#include "daemon/http/message/api_error.h"
#include "daemon/http/message/http_request.h"
#include "daemon/http/message/http_response.h"
#include "daemon/http/route.h"

namespace afd::daemon {

// Host and Origin: whether it comes from where it may. 403.
std::optional<ApiError> check_source(const HttpRequest& request, const HttpServices& services);
// The path and the method. 404, 405.
std::optional<ApiError> check_route(const HttpRequest& request, const std::optional<Route>& route);
// The form of the body. 415.
std::optional<ApiError> check_media(const HttpRequest& request);
// The name of the key that the request has; empty: none is needed. 401.
ApiResult<std::string> check_key(const HttpRequest& request,
                                 const Route& route,
                                 const ApiKeys& keys);

// GET /health?deep=1, which makes the workers work: it needs a key where keys are needed.
bool is_deep_check(const HttpRequest& request, const Route& route);

struct RequestVerdict {
    // What refuses the request, or answers its OPTIONS; nothing: it may be served.
    std::optional<HttpResponse> response;
    std::string key;  // Its name; empty: none is needed, or it came to no key.
    // The answer has these headers, whatever it is: they let a page of another site read it.
    std::vector<HttpResponse::Header> headers;
};
// All of these checks, in their order.
RequestVerdict judge(const HttpRequest& request,
                     const std::optional<Route>& route,
                     const HttpServices& services);

// The client's X-Request-Id if it can stand in a header and a log line, else one that is drawn.
std::string request_id_of(const HttpRequest& request);

}  // namespace afd::daemon
