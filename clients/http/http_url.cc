// SPDX-License-Identifier: Apache-2.0
#include "clients/http/http_url.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>

#include "proto/typed_number.h"

namespace afd::client {
namespace {

constexpr std::string_view kScheme = "http://";
constexpr const char* kForm =
    "give the base address of the server, as http://127.0.0.1:8000 or http://host:8000/v1";

afd::Error bad_url(const std::string& text, const std::string& why) {
    return {Code::kInvalidArgument, fmt::format("'{}': {}; {}", text, why, kForm)};
}

bool is_visible(std::string_view text) {
    return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 0x7f; });
}

// Splits "host:port" or "[address]:port". False: it is neither.
bool parse_authority(std::string_view authority, HttpUrl& url) {
    std::string_view port;
    if (authority.starts_with('[')) {
        const size_t end = authority.find(']');
        if (end == std::string_view::npos) return false;
        url.host = authority.substr(1, end - 1);
        port = authority.substr(end + 1);
        if (!port.empty() && port.front() != ':') return false;
    } else {
        const size_t colon = std::min(authority.find(':'), authority.size());
        url.host = authority.substr(0, colon);
        port = authority.substr(colon);
    }
    if (url.host.empty()) return false;
    if (port.empty()) return true;
    const uint64_t number = whole_number(port.substr(1)).value_or(0);
    url.port = static_cast<uint16_t>(number);
    return number != 0 && number <= std::numeric_limits<uint16_t>::max();
}

}  // namespace

std::string HttpUrl::authority() const {
    const bool is_ipv6 = host.find(':') != std::string::npos;
    return is_ipv6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

Result<HttpUrl> parse_http_url(const std::string& text) {
    if (text.starts_with("https://")) {
        return afd::Error{Code::kUnimplemented,
                          "'" + text +
                              "': https is not spoken here; let a program that does end the TLS on "
                              "this machine (stunnel, haproxy, ssh -L) and name its http address"};
    }
    if (!text.starts_with(kScheme)) return bad_url(text, "it does not begin with http://");
    if (!is_visible(text)) return bad_url(text, "it has blanks or characters beyond ASCII");
    const std::string_view rest = std::string_view(text).substr(kScheme.size());
    const size_t slash = std::min(rest.find('/'), rest.size());
    if (rest.find_first_of("?#@") != std::string_view::npos) {
        return bad_url(text, "a query, a fragment or a user has no place in it");
    }
    HttpUrl url;
    if (!parse_authority(rest.substr(0, slash), url)) {
        return bad_url(text, "it has no host, or a port that is not 1 to 65535");
    }
    std::string_view path = rest.substr(slash);
    while (path.ends_with('/')) path.remove_suffix(1);
    for (const std::string_view endpoint : {"/completions", "/models"}) {
        if (path.ends_with(endpoint)) return bad_url(text, "it names one endpoint");
    }
    if (path.ends_with("/v1")) path.remove_suffix(3);
    url.prefix = path;
    return url;
}

}  // namespace afd::client
