// SPDX-License-Identifier: Apache-2.0
#include "daemon/tcp/network_devices.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <array>
#include <cstring>

#include "daemon/config/address_kind.h"

namespace afd::daemon {

namespace {

// Empty: it is of another family.
std::string text_of_address(const sockaddr& address) {
    std::array<char, INET6_ADDRSTRLEN> text{};
    const void* host = nullptr;
    sockaddr_in in{};
    sockaddr_in6 in6{};
    if (address.sa_family == AF_INET) {
        std::memcpy(&in, &address, sizeof(in));
        host = &in.sin_addr;
    } else if (address.sa_family == AF_INET6) {
        std::memcpy(&in6, &address, sizeof(in6));
        host = &in6.sin6_addr;
    } else {
        return "";
    }
    const char* done = ::inet_ntop(address.sa_family, host, text.data(), text.size());
    return done == nullptr ? "" : done;
}

}  // namespace

NetworkDevices network_devices() {
    NetworkDevices devices;
    ifaddrs* found = nullptr;
    if (::getifaddrs(&found) != 0) return devices;
    for (const ifaddrs* one = found; one != nullptr; one = one->ifa_next) {
        if ((one->ifa_flags & IFF_UP) == 0 || one->ifa_addr == nullptr) continue;
        // "eth0:1" is a label of an address of eth0.
        const std::string label = one->ifa_name;
        std::set<std::string>& addresses = devices[label.substr(0, label.find(':'))];
        const std::string text = text_of_address(*one->ifa_addr);
        if (!text.empty()) addresses.insert(text);
    }
    ::freeifaddrs(found);
    return devices;
}

std::string device_with(const NetworkDevices& devices, const std::string& host) {
    const std::string wanted = canonical_address(host);
    for (const auto& [name, addresses] : devices) {
        if (addresses.contains(wanted)) return name;
    }
    const bool is_of_loopback = wanted.starts_with("127.") && wanted != "127.0.0.1";
    return is_of_loopback ? device_with(devices, "127.0.0.1") : "";
}

}  // namespace afd::daemon
