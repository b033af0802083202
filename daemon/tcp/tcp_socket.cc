// SPDX-License-Identifier: Apache-2.0
#include "daemon/tcp/tcp_socket.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "proto/failure.h"

namespace afd::daemon {

namespace {

Error cannot_listen(const std::string& option, const ListenAddress& address, int error) {
    if (error == EADDRINUSE) {
        return {Code::kAlreadyExists,
                fmt::format("{}: port {} of {} is taken by another process (ss -ltnp says by "
                            "which); choose another, or 0 for any that is free",
                            option,
                            address.port,
                            address.host)};
    }
    return {
        Code::kPermissionDenied,
        fmt::format("{}: cannot listen on {}: {}", option, address.text(), std::strerror(error))};
}

const sockaddr* generic(const SocketAddress& address) {
    return reinterpret_cast<const sockaddr*>(&address.storage);
}

// What getpeername() or getsockname() says.
template <typename Ask>
std::optional<SocketAddress> address_from(Ask ask, int socket) {
    SocketAddress address;
    address.size = sizeof(address.storage);
    if (ask(socket, reinterpret_cast<sockaddr*>(&address.storage), &address.size) != 0) {
        return std::nullopt;
    }
    return address;
}

}  // namespace

Result<UniqueFd> listen_tcp(ListenAddress& address, const std::string& option) {
    const SocketAddress to = socket_address_of(address);
    UniqueFd fd(::socket(to.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd.valid()) return cannot_listen(option, address, errno);
    // A port whose last connections are still being forgotten by the kernel is free.
    const int on = 1;
    ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    // An answer of few bytes is not to wait for more; accepted sockets inherit it.
    ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (::bind(fd.get(), generic(to), to.size) != 0 || ::listen(fd.get(), SOMAXCONN) != 0) {
        return cannot_listen(option, address, errno);
    }
    const auto bound = own_address(fd.get());
    if (!bound) return cannot_listen(option, address, errno);
    address.port = listen_address_of(*bound).port;
    return fd;
}

Result<UniqueFd> listen_within(PortRange ports, ListenAddress& address, const std::string& option) {
    for (uint32_t port = ports.first; port <= ports.last; ++port) {
        address.port = static_cast<uint16_t>(port);
        Result<UniqueFd> socket = listen_tcp(address, option);
        if (socket.ok() || socket.error().code != Code::kAlreadyExists) return socket;
    }
    return Error{Code::kAlreadyExists,
                 fmt::format("{} = '{}-{}': each of these ports of {} is taken; name more",
                             option,
                             ports.first,
                             ports.last,
                             address.host)};
}

Result<UniqueFd> connect_tcp(const SocketAddress& to) {
    UniqueFd fd(::socket(to.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd.valid() || (::connect(fd.get(), generic(to), to.size) != 0 && errno != EINPROGRESS)) {
        return unavailable("cannot connect to {}: {}",
                           with(listen_address_of(to).text(), std::strerror(errno)));
    }
    return fd;
}

Result<std::vector<SocketAddress>> addresses_of(const std::string& host, uint16_t port) {
    addrinfo wanted{};
    wanted.ai_family = AF_UNSPEC;
    wanted.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    const int status = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &wanted, &found);
    if (status != 0) {
        const char* reason = status == EAI_SYSTEM ? std::strerror(errno) : ::gai_strerror(status);
        return unavailable("the name of host '{}' is not known: {}", with(host, reason));
    }
    std::vector<SocketAddress> addresses;
    for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
        SocketAddress& address = addresses.emplace_back();
        address.size = one->ai_addrlen;
        std::memcpy(&address.storage, one->ai_addr, one->ai_addrlen);
    }
    ::freeaddrinfo(found);
    return addresses;
}

std::optional<SocketAddress> peer_address(int socket) {
    return address_from(::getpeername, socket);
}

std::optional<SocketAddress> own_address(int socket) {
    return address_from(::getsockname, socket);
}

std::string peer_name(int socket) {
    const auto address = peer_address(socket);
    return address ? listen_address_of(*address).text() : "unknown";
}

ListenAddress listen_address_of(const SocketAddress& address) {
    ListenAddress found;
    found.is_ipv6 = address.storage.ss_family == AF_INET6;
    sockaddr_in in{};
    sockaddr_in6 in6{};
    std::memcpy(&in, &address.storage, sizeof(in));
    std::memcpy(&in6, &address.storage, sizeof(in6));
    const void* host = found.is_ipv6 ? static_cast<const void*>(&in6.sin6_addr) : &in.sin_addr;
    std::array<char, INET6_ADDRSTRLEN> text{};
    if (::inet_ntop(address.storage.ss_family, host, text.data(), text.size()) == nullptr) {
        return found;
    }
    found.host = text.data();
    found.port = ntohs(found.is_ipv6 ? in6.sin6_port : in.sin_port);
    return found;
}

std::string to_bytes(const SocketAddress& address) {
    return {reinterpret_cast<const char*>(&address.storage), address.size};
}

std::optional<SocketAddress> from_bytes(const std::string& bytes) {
    SocketAddress address;
    if (bytes.size() > sizeof(address.storage)) return std::nullopt;
    std::memcpy(&address.storage, bytes.data(), bytes.size());
    address.size = static_cast<socklen_t>(bytes.size());
    const bool is_ipv4 =
        address.storage.ss_family == AF_INET && bytes.size() == sizeof(sockaddr_in);
    const bool is_ipv6 =
        address.storage.ss_family == AF_INET6 && bytes.size() == sizeof(sockaddr_in6);
    if (!is_ipv4 && !is_ipv6) return std::nullopt;
    return address;
}

}  // namespace afd::daemon
