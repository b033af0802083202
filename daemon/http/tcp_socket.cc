// SPDX-License-Identifier: Apache-2.0
#include "daemon/http/tcp_socket.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace afd::daemon {

namespace {

Error cannot_listen(const ListenAddress& address, int error) {
    if (error == EADDRINUSE) {
        return {Code::kAlreadyExists,
                fmt::format("http: port {} of {} is taken by another process (ss -ltnp says by "
                            "which); choose another, or 0 for any that is free",
                            address.port,
                            address.host)};
    }
    return {Code::kPermissionDenied,
            fmt::format("http: cannot listen on {}: {}", address.text(), std::strerror(error))};
}

uint16_t port_of(const sockaddr_storage& storage) {
    if (storage.ss_family == AF_INET6) {
        sockaddr_in6 in{};
        std::memcpy(&in, &storage, sizeof(in));
        return ntohs(in.sin6_port);
    }
    sockaddr_in in{};
    std::memcpy(&in, &storage, sizeof(in));
    return ntohs(in.sin_port);
}

}  // namespace

Result<UniqueFd> listen_tcp(ListenAddress& address) {
    const SocketAddress to = socket_address_of(address);
    UniqueFd fd(::socket(to.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd.valid()) return cannot_listen(address, errno);
    // A port whose last connections are still being forgotten by the kernel is free.
    const int on = 1;
    ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    // An answer of few bytes is not to wait for more; accepted sockets inherit it.
    ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    const auto* generic = reinterpret_cast<const sockaddr*>(&to.storage);
    if (::bind(fd.get(), generic, to.size) != 0 || ::listen(fd.get(), SOMAXCONN) != 0) {
        return cannot_listen(address, errno);
    }
    sockaddr_storage bound{};
    socklen_t size = sizeof(bound);
    if (::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&bound), &size) != 0) {
        return cannot_listen(address, errno);
    }
    address.port = port_of(bound);
    return fd;
}

std::string peer_name(int socket) {
    sockaddr_storage peer{};
    socklen_t size = sizeof(peer);
    std::array<char, INET6_ADDRSTRLEN> text{};
    if (::getpeername(socket, reinterpret_cast<sockaddr*>(&peer), &size) != 0) return "unknown";
    const bool is_ipv6 = peer.ss_family == AF_INET6;
    sockaddr_in in{};
    sockaddr_in6 in6{};
    std::memcpy(&in, &peer, sizeof(in));
    std::memcpy(&in6, &peer, sizeof(in6));
    const void* from = is_ipv6 ? static_cast<const void*>(&in6.sin6_addr) : &in.sin_addr;
    if (::inet_ntop(peer.ss_family, from, text.data(), text.size()) == nullptr) return "unknown";
    const std::string host = is_ipv6 ? fmt::format("[{}]", text.data()) : text.data();
    return fmt::format("{}:{}", host, port_of(peer));
}

}  // namespace afd::daemon
