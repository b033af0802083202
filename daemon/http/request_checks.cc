// SPDX-License-Identifier: Apache-2.0
#include "daemon/http/request_checks.h"

#include <arpa/inet.h>
#include <fmt/core.h>

#include <algorithm>

#include "daemon/gateway/request/random_seed.h"
#include "daemon/http/message/http_word.h"
#include "model/chat/message/chat_text.h"
#include "model/unicode/utf8.h"

namespace afd::daemon {

namespace {

constexpr size_t kRequestIdBytesMax = 128;

std::string_view without_port(std::string_view host) {
    const size_t bracket = host.rfind(']');
    const size_t colon = host.rfind(':');
    const bool has_port =
        colon != std::string_view::npos && (bracket == std::string_view::npos || colon > bracket);
    return has_port ? host.substr(0, colon) : host;
}

// An address, and no name that begins like one: whose name it is says where that leads.
bool is_loopback_address(const std::string& name) {
    in_addr parsed{};
    return name.starts_with("127.") && ::inet_pton(AF_INET, name.c_str(), &parsed) == 1;
}

bool is_of_this_machine(std::string_view host) {
    const std::string_view name = without_port(host);
    return is_same_word(name, "localhost") || name == "[::1]" ||
           is_loopback_address(std::string(name));
}

bool is_of_other_site(const HttpRequest& request) {
    return !request.origin.empty() && !is_same_word(request.origin, "http://" + request.host) &&
           !is_same_word(request.origin, "https://" + request.host);
}

// What lets a page of another site read the answer, and send the request in the first place.
std::vector<HttpResponse::Header> headers_for_page(const HttpRequest& request,
                                                   const std::optional<Route>& route) {
    if (!is_of_other_site(request)) return {};
    std::vector<HttpResponse::Header> headers{
        {"Access-Control-Allow-Origin", request.origin},
        {"Access-Control-Expose-Headers",
         "X-Request-Id, X-Ignored-Params, X-Afd-Resume, Retry-After"},
        {"Vary", "Origin"}};
    if (request.method != "OPTIONS" || request.asked_method.empty() || !route) return headers;
    headers.emplace_back("Access-Control-Allow-Methods", route->methods());
    const bool is_text = std::ranges::all_of(
        request.asked_headers, [](char c) { return is_plain(c) || c == ',' || c == ' '; });
    if (!request.asked_headers.empty() && is_text) {
        headers.emplace_back("Access-Control-Allow-Headers", request.asked_headers);
    }
    headers.emplace_back("Access-Control-Max-Age", "600");
    return headers;
}

}  // namespace

std::optional<ApiError> check_source(const HttpRequest& request, const HttpServices& services) {
    // A name that leads here only for this visitor's browser makes a page of another site one of
    // this. It has no key, though: with keys, a proxy on this machine may pass on any Host.
    const bool is_for_this_machine = services.is_loopback && services.keys.empty();
    if (is_for_this_machine && !request.host.empty() && !is_of_this_machine(request.host)) {
        return ApiError{.status = 403,
                        .code = "host_not_allowed",
                        .message =
                            "Host names another machine, and without keys afdd serves this one "
                            "only; use 127.0.0.1 or localhost, or set http_keys"};
    }
    // A page of another site may make its visitor's browser send requests, but cannot hide where
    // they come from.
    if (is_of_other_site(request) && !services.origins.has(request.origin)) {
        return ApiError{.status = 403,
                        .code = "origin_not_allowed",
                        .message =
                            "the request comes from a page of another site, which "
                            "http_origins does not list"};
    }
    return std::nullopt;
}

std::optional<ApiError> check_route(const HttpRequest& request, const std::optional<Route>& route) {
    const bool is_question = request.method == "OPTIONS";
    if (!route && is_question && request.path == "*") return std::nullopt;
    if (!route) {
        const std::string meant = meant_path(request.path);
        return ApiError{
            .status = 404,
            .code = "unknown_url",
            .message = fmt::format("there is no {}{}",
                                   model::start_of(request.path, 100),
                                   meant.empty() ? "" : "; did you mean " + meant + "?")};
    }
    if (route->takes(request.method) || is_question) return std::nullopt;
    return ApiError{.status = 405,
                    .code = "method_not_allowed",
                    .message = fmt::format("{} takes {}", request.path, route->methods())};
}

std::optional<ApiError> check_media(const HttpRequest& request) {
    if (request.has_content_encoding) {
        return ApiError{.status = 415,
                        .code = "unsupported_media_type",
                        .message = "Content-Encoding is not served: send the JSON as it is"};
    }
    // curl -d without a header calls its body a form, and means JSON.
    const std::string_view type = request.content_type;
    const std::string_view name = model::strip(type.substr(0, type.find(';')));
    if (name.empty() || is_same_word(name, "application/json") ||
        is_same_word(name, "application/x-www-form-urlencoded")) {
        return std::nullopt;
    }
    return ApiError{.status = 415,
                    .code = "unsupported_media_type",
                    .message = "Content-Type must be application/json"};
}

ApiResult<std::string> check_key(const HttpRequest& request,
                                 const Route& route,
                                 const ApiKeys& keys) {
    if (keys.empty() || !route.needs_key) return std::string();
    if (auto name = keys.name_of(request.authorization)) return *std::move(name);
    return ApiError{.status = 401,
                    .code = "invalid_api_key",
                    .message = request.authorization.empty()
                                   ? "an API key is needed: Authorization: Bearer KEY"
                                   : "the API key in Authorization is none that is served"};
}

// Among other parameters, too: who asked for the deep one must not be told of the other.
bool is_deep_check(const HttpRequest& request, const Route& route) {
    if (route.endpoint != Endpoint::kReady) return false;
    std::string_view rest = request.query;
    while (!rest.empty()) {
        const size_t end = std::min(rest.find('&'), rest.size());
        const std::string_view parameter = rest.substr(0, end);
        if (parameter == "deep=1" || parameter == "deep=true" || parameter == "deep") return true;
        rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    return false;
}

RequestVerdict judge(const HttpRequest& request,
                     const std::optional<Route>& route,
                     const HttpServices& services) {
    RequestVerdict verdict;
    std::optional<ApiError> error = check_source(request, services);
    if (!error) {
        verdict.headers = headers_for_page(request, route);
        error = check_route(request, route);
    }
    if (error || request.method == "OPTIONS") {
        verdict.response = error ? HttpResponse::of(*error) : HttpResponse();
        const std::string_view all = request.path == "*" ? "GET, HEAD, POST, OPTIONS" : "";
        const std::string_view methods = route ? route->methods() : all;
        if (!methods.empty()) verdict.response->headers.emplace_back("Allow", methods);
        return verdict;
    }
    Route checked = *route;
    if (is_deep_check(request, checked)) checked.needs_key = true;
    ApiResult<std::string> key = check_key(request, checked, services.keys);
    if (const auto* no_key = std::get_if<ApiError>(&key)) {
        verdict.response = HttpResponse::of(*no_key);
        return verdict;
    }
    verdict.key = std::get<std::string>(std::move(key));
    if (checked.is_post) error = check_media(request);
    if (error) verdict.response = HttpResponse::of(*error);
    return verdict;
}

std::string request_id_of(const HttpRequest& request) {
    const std::string& given = request.request_id;
    const bool is_usable = !given.empty() && given.size() <= kRequestIdBytesMax &&
                           std::all_of(given.begin(), given.end(), is_plain);
    return is_usable ? given : fmt::format("req-{:016x}", draw_random());
}

}  // namespace afd::daemon
