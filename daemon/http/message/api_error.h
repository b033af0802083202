// SPDX-License-Identifier: Apache-2.0
#pragma once

// ApiError: what an HTTP client is told when a request is not served: a status and the error object
// of the OpenAI API. The gateway's Errors become one here, and nowhere else.

#include <cstdint>
#include <string>
#include <variant>

#include "proto/client.pb.h"

namespace afd::daemon {

struct ApiError {
    int status = 500;
    std::string code = {};   // "invalid_json"; empty: null.
    std::string param = {};  // The field of the request that is to blame; empty: null.
    std::string message = {};
    uint32_t retry_after_s = 0;  // 0: the header is left out.
};

// "invalid_request_error", "rate_limit_error" or "server_error", by the status.
std::string error_type(const ApiError& error);

// {"error":{...}}, on one line.
std::string error_json(const ApiError& error);

// The answer to a request that the gateway refused or gave up. A message that begins with "<field>
// = " names the param.
ApiError api_error(const client::Error& error);

// 400 about one field.
ApiError bad_field(std::string param, std::string message);
// 400: the field is known, and this server does not do what it asks for.
ApiError unsupported_field(std::string param, std::string message);

// A value, or why there is none.
template <typename T>
using ApiResult = std::variant<T, ApiError>;

}  // namespace afd::daemon
