// SPDX-License-Identifier: Apache-2.0
#include "daemon/config/join_address.h"

#include <algorithm>

#include "daemon/config/listen_address.h"
#include "proto/failure.h"

namespace afd::daemon {

namespace {

// The most bytes of a name in the domain name system (RFC 1035).
constexpr size_t kNameBytesMax = 253;

Error no_join_address() {
    return invalid_argument(
        "must be HOST:PORT, such as 10.0.0.1:7411, [fd00::1]:7411 or node1:7411");
}

// Names of machines also have underscores. One of numbers and dots alone is a mistyped address.
bool is_name(const std::string& text) {
    const auto is_part = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               c == '.' || c == '-' || c == '_';
    };
    const auto is_letter = [](char c) { return c != '.' && (c < '0' || c > '9'); };
    return text.size() <= kNameBytesMax && std::ranges::all_of(text, is_part) &&
           std::ranges::any_of(text, is_letter);
}

}  // namespace

std::string JoinAddress::text() const {
    const bool has_colons = host.find(':') != std::string::npos;
    return (has_colons ? '[' + host + ']' : host) + ':' + std::to_string(port);
}

Result<JoinAddress> parse_join_address(const std::string& text) {
    JoinAddress address;
    if (const auto numbers = parse_listen_address(text); numbers.ok()) {
        address.host = numbers.value().host;
        address.port = numbers.value().port;
    } else {
        const auto parts = split_port(text);
        if (!parts || !is_name(parts->host)) return no_join_address();
        address = {.host = parts->host, .port = parts->port, .is_name = true};
    }
    if (address.port == 0) return invalid_argument("port 0 is where nobody listens");
    return address;
}

Result<> check_join_address(const std::string& value) {
    if (value.empty()) return {};
    const Result<JoinAddress> address = parse_join_address(value);
    return address.ok() ? Result<>() : Result<>(address.error());
}

}  // namespace afd::daemon
