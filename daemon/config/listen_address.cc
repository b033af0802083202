// SPDX-License-Identifier: Apache-2.0
#include "daemon/config/listen_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <cstdint>
#include <cstring>
#include <string_view>

#include "daemon/config/address_kind.h"
#include "proto/check.h"
#include "proto/failure.h"
#include "proto/typed_number.h"

namespace afd::daemon {

namespace {

Error malformed() {
    return invalid_argument("must be ADDRESS:PORT, such as 127.0.0.1:8000 or [::1]:8000");
}

bool is_address(int family, const std::string& host) {
    in6_addr parsed{};
    return ::inet_pton(family, host.c_str(), &parsed) == 1;
}

}  // namespace

std::optional<HostAndPort> split_port(const std::string& text) {
    const size_t colon = text.rfind(':');
    if (colon == std::string::npos) return std::nullopt;
    HostAndPort parts;
    parts.host = text.substr(0, colon);
    const auto port = whole_number(std::string_view(text).substr(colon + 1));
    if (!port || *port > UINT16_MAX) return std::nullopt;
    parts.port = static_cast<uint16_t>(*port);
    return parts;
}

Result<ListenAddress> parse_listen_address(const std::string& text) {
    const auto parts = split_port(text);
    if (!parts) return malformed();
    ListenAddress address;
    address.host = parts->host;
    address.port = parts->port;
    if (address.host == "localhost") address.host = "127.0.0.1";
    if (address.host.starts_with('[') && address.host.ends_with(']')) {
        address.host = address.host.substr(1, address.host.size() - 2);
        address.is_ipv6 = true;
    }
    if (!is_address(address.is_ipv6 ? AF_INET6 : AF_INET, address.host)) return malformed();
    return address;
}

Result<> check_listen_address(const std::string& value) {
    if (value.empty()) return {};
    const Result<ListenAddress> address = parse_listen_address(value);
    return address.ok() ? Result<>() : Result<>(address.error());
}

bool ListenAddress::is_loopback() const {
    return is_loopback_host(host);
}

std::string ListenAddress::text() const {
    return (is_ipv6 ? '[' + host + ']' : host) + ':' + std::to_string(port);
}

SocketAddress socket_address_of(const ListenAddress& address) {
    SocketAddress bound;
    int parsed = 0;
    if (address.is_ipv6) {
        sockaddr_in6 in{};
        in.sin6_family = AF_INET6;
        in.sin6_port = htons(address.port);
        parsed = ::inet_pton(AF_INET6, address.host.c_str(), &in.sin6_addr);
        bound.size = sizeof(in);
        std::memcpy(&bound.storage, &in, sizeof(in));
    } else {
        sockaddr_in in{};
        in.sin_family = AF_INET;
        in.sin_port = htons(address.port);
        parsed = ::inet_pton(AF_INET, address.host.c_str(), &in.sin_addr);
        bound.size = sizeof(in);
        std::memcpy(&bound.storage, &in, sizeof(in));
    }
    AFD_ASSERT(parsed == 1, "'%s' is no address", address.host.c_str());
    return bound;
}

}  // namespace afd::daemon
