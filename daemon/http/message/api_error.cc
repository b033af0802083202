// SPDX-License-Identifier: Apache-2.0
#include "daemon/http/message/api_error.h"

#include <algorithm>
#include <cctype>
#include <string_view>
#include <utility>

#include "daemon/http/message/json_text.h"
#include "model/unicode/utf8.h"
#include "proto/status.h"

namespace afd::daemon {

namespace {

// The field that a message of the gateway begins with: "top_p = 2: must be ...", "stop is not ...".
std::string field_of(std::string_view message) {
    // token_ids[3] is a place in what an HTTP client calls the prompt.
    if (message.starts_with("token_ids[") || message.starts_with("the prompt ")) return "prompt";
    const size_t end = message.find_first_of(" [");
    if (end == std::string_view::npos) return "";
    const std::string_view field = message.substr(0, end);
    const std::string_view rest = message.substr(end);
    const bool is_field = rest.starts_with(" = ") || rest.starts_with(" is ") ||
                          rest.starts_with(" has ") || rest.starts_with(" of token ") ||
                          rest.starts_with('[');
    const bool is_name = std::all_of(field.begin(), field.end(), [](char c) {
        return c == '_' || std::islower(static_cast<unsigned char>(c)) != 0;
    });
    return is_field && is_name && field != "it" ? std::string(field) : "";
}

// What the gateway says when a prompt, or it and its output, do not fit (request.cc).
bool is_about_length(std::string_view message) {
    return message.starts_with("the prompt has ") &&
           message.find(" fit, ") != std::string_view::npos;
}

// Both are the gateway's words (output_limit.cc, resumable_requests.cc).
bool is_about_reading(std::string_view message) {
    return message.starts_with("the client reads too slowly") ||
           message.starts_with("nothing of it was read ");
}

bool is_about_keeping(std::string_view message) {
    return message.find("(resume_buffer_kib)") != std::string_view::npos;
}

// Something is full. Only where it is a queue may the same request find room in a moment.
ApiError exhausted(const std::string& message) {
    if (is_about_reading(message)) {
        return {.status = 408, .code = "client_too_slow", .message = message};
    }
    if (is_about_keeping(message)) {
        return {.status = 503, .code = "resume_buffer_full", .message = message};
    }
    return {.status = 429, .code = "queue_full", .message = message, .retry_after_s = 1};
}

// A message may name what a client sent, such as a path, and that is any bytes.
std::string readable(std::string_view text) {
    std::string valid;
    while (!text.empty()) {
        const model::Utf8Step step = model::next_character(text);
        const bool is_valid = step.state == model::Utf8State::kValid;
        valid += is_valid ? text.substr(0, step.size) : model::kReplacementCharacter;
        text.remove_prefix(step.size);
    }
    return valid;
}

ApiError invalid(std::string message) {
    ApiError error{.status = 400, .message = std::move(message)};
    error.param = field_of(error.message);
    if (error.message.find(" is not supported") != std::string::npos) {
        error.code = "unsupported_parameter";
    } else if (is_about_length(error.message)) {
        error.code = "context_length_exceeded";
        if (error.message.find("max_tokens") != std::string::npos) error.param = "max_tokens";
    }
    return error;
}

}  // namespace

std::string error_type(const ApiError& error) {
    if (error.status == 429) return "rate_limit_error";
    return error.status >= 500 ? "server_error" : "invalid_request_error";
}

std::string error_json(const ApiError& error) {
    std::string json = R"({"error":{"message":)";
    append_json_string(readable(error.message), json);
    json += R"(,"type":)";
    append_json_string(error_type(error), json);
    json += R"(,"param":)";
    append_json_string_or_null(readable(error.param), json);
    json += R"(,"code":)";
    append_json_string_or_null(error.code, json);
    return json + "}}";
}

ApiError api_error(const client::Error& error) {
    const std::string& message = error.message();
    switch (static_cast<Code>(error.code())) {
        case Code::kInvalidArgument:
            return invalid(message);
        case Code::kUnimplemented:
            return unsupported_field(field_of(message), message);
        case Code::kNotFound:
            return {.status = 404, .message = message};
        case Code::kResourceExhausted:
            return exhausted(message);
        case Code::kFailedPrecondition:
            return {.status = 503, .code = "draining", .message = message, .retry_after_s = 5};
        case Code::kUnavailable:
            return {.status = 503, .code = "worker_lost", .message = message, .retry_after_s = 5};
        case Code::kDeadlineExceeded:
            return {.status = 504, .code = "deadline_exceeded", .message = message};
        case Code::kAlreadyExists:
            return {.status = 409, .code = "resumed_elsewhere", .message = message};
        case Code::kOk:
        case Code::kCancelled:
        case Code::kDataLoss:
        case Code::kPermissionDenied:
        case Code::kInternal:
            break;
    }
    return {.status = 500, .code = "internal_error", .message = message};
}

ApiError bad_field(std::string param, std::string message) {
    return {.status = 400, .param = std::move(param), .message = std::move(message)};
}

ApiError unsupported_field(std::string param, std::string message) {
    return {.status = 400,
            .code = "unsupported_parameter",
            .param = std::move(param),
            .message = std::move(message)};
}

}  // namespace afd::daemon
