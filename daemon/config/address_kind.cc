// SPDX-License-Identifier: Apache-2.0
#include "daemon/config/address_kind.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <array>
#include <cstring>

namespace afd::daemon {

namespace {

AddressKind kind_of_ipv4(const in_addr& address) {
    const uint32_t number = ntohl(address.s_addr);
    if (number == INADDR_ANY) return AddressKind::kAny;
    if (IN_MULTICAST(number)) return AddressKind::kMulticast;
    return number >> 24 == IN_LOOPBACKNET ? AddressKind::kLoopback : AddressKind::kUnicast;
}

AddressKind kind_of_ipv6(const in6_addr& address) {
    if (IN6_IS_ADDR_V4MAPPED(&address)) {
        in_addr mapped{};
        std::memcpy(&mapped, &address.s6_addr[12], sizeof(mapped));
        return kind_of_ipv4(mapped);
    }
    if (IN6_IS_ADDR_UNSPECIFIED(&address)) return AddressKind::kAny;
    if (IN6_IS_ADDR_MULTICAST(&address)) return AddressKind::kMulticast;
    return IN6_IS_ADDR_LOOPBACK(&address) ? AddressKind::kLoopback : AddressKind::kUnicast;
}

}  // namespace

std::optional<AddressKind> kind_of_address(const std::string& host) {
    in_addr v4{};
    in6_addr v6{};
    if (::inet_pton(AF_INET, host.c_str(), &v4) == 1) return kind_of_ipv4(v4);
    if (::inet_pton(AF_INET6, host.c_str(), &v6) == 1) return kind_of_ipv6(v6);
    return std::nullopt;
}

std::string canonical_address(const std::string& host) {
    std::array<char, INET6_ADDRSTRLEN> text{};
    in6_addr parsed{};
    for (const int family : {AF_INET, AF_INET6}) {
        if (::inet_pton(family, host.c_str(), &parsed) != 1) continue;
        if (::inet_ntop(family, &parsed, text.data(), text.size()) != nullptr) return text.data();
    }
    return host;
}

}  // namespace afd::daemon
