// SPDX-License-Identifier: Apache-2.0
#include "clients/http/tcp_peer.h"

#include <fmt/core.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

namespace afd::client {

afd::Error explain_socket_error(const TcpPeer& peer, int error_number) {
    if (error_number == ECONNREFUSED) {
        return {Code::kUnavailable,
                fmt::format("nobody listens at {} (connection refused); is the server up, and does "
                            "it listen there? afdd does with --http ADDRESS:PORT",
                            peer.name)};
    }
    if (error_number == EMFILE || error_number == ENFILE) {
        return {Code::kResourceExhausted,
                "no file descriptor is left for another connection; raise ulimit -n, or ask for "
                "less at once"};
    }
    if (error_number == EADDRNOTAVAIL) {
        return {Code::kResourceExhausted,
                fmt::format("no port is left for another connection to {}; ask for less at once",
                            peer.name)};
    }
    return {Code::kUnavailable,
            fmt::format("connection to {}: {}", peer.name, std::strerror(error_number))};
}

Result<int> begin_connect(const TcpPeer& peer) {
    const int fd = ::socket(peer.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return explain_socket_error(peer, errno);
    // A request is one write, and shall leave at once.
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    const auto* generic = reinterpret_cast<const sockaddr*>(&peer.address);
    if (::connect(fd, generic, peer.address_size) == 0 || errno == EINPROGRESS) return fd;
    const int error_number = errno;
    ::close(fd);
    return explain_socket_error(peer, error_number);
}

Result<> connect_error(int socket, const TcpPeer& peer) {
    int error_number = 0;
    socklen_t size = sizeof(error_number);
    ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error_number, &size);
    if (error_number == 0) return {};
    return explain_socket_error(peer, error_number);
}

Result<> wait_for_socket(int socket,
                         short events,
                         std::chrono::steady_clock::time_point deadline,
                         const Cancellation& cancellation) {
    std::array<pollfd, 2> items = {pollfd{socket, events, 0}, pollfd{cancellation.fd(), POLLIN, 0}};
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    const int timeout_ms = static_cast<int>(std::clamp<int64_t>(left.count(), 0, 1 << 30));
    if (::poll(items.data(), items.size(), timeout_ms) == 0) {
        return afd::Error{Code::kDeadlineExceeded, "no answer in time"};
    }
    if (cancellation.requested()) return afd::Error{Code::kCancelled, "interrupted"};
    return {};
}

Result<> end_connect(int socket,
                     const TcpPeer& peer,
                     std::chrono::steady_clock::time_point deadline,
                     const Cancellation& cancellation) {
    const Result<> waited = wait_for_socket(socket, POLLOUT, deadline, cancellation);
    if (!waited.ok() && waited.error().code == Code::kDeadlineExceeded) {
        return afd::Error{Code::kDeadlineExceeded,
                          peer.name +
                              " did not accept a connection in time; is the host up, and "
                              "the way to it open?"};
    }
    AFD_TRY(waited);
    return connect_error(socket, peer);
}

namespace {

Result<> try_connect(const TcpPeer& peer,
                     std::chrono::steady_clock::time_point deadline,
                     const Cancellation& cancellation) {
    AFD_ASSIGN(const int fd, begin_connect(peer));
    Result<> done = end_connect(fd, peer, deadline, cancellation);
    ::close(fd);
    return done;
}

std::string numeric_name(const addrinfo& info) {
    std::array<char, NI_MAXHOST> host{};
    std::array<char, NI_MAXSERV> port{};
    if (::getnameinfo(info.ai_addr,
                      info.ai_addrlen,
                      host.data(),
                      host.size(),
                      port.data(),
                      port.size(),
                      NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
        return "unknown";
    }
    return info.ai_family == AF_INET6 ? fmt::format("[{}]:{}", host.data(), port.data())
                                      : fmt::format("{}:{}", host.data(), port.data());
}

size_t num_addresses(const addrinfo* list) {
    size_t count = 0;
    for (; list != nullptr; list = list->ai_next) ++count;
    return count;
}

}  // namespace

std::chrono::steady_clock::time_point deadline_of_first(
    size_t num_left,
    std::chrono::steady_clock::time_point now,
    std::chrono::steady_clock::time_point deadline) {
    return now + (deadline - now) / static_cast<int64_t>(num_left);
}

Result<TcpPeer> find_peer(const HttpUrl& url,
                          std::chrono::steady_clock::time_point deadline,
                          const Cancellation& cancellation) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICSERV;
    addrinfo* list = nullptr;
    const int error =
        ::getaddrinfo(url.host.c_str(), std::to_string(url.port).c_str(), &hints, &list);
    const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, ::freeaddrinfo);
    if (error != 0) {
        return afd::Error{
            Code::kNotFound,
            fmt::format(
                "no address of the host '{}' is known: {}", url.host, ::gai_strerror(error))};
    }
    afd::Error last{Code::kNotFound, fmt::format("the host '{}' has no address", url.host)};
    size_t num_left = num_addresses(list);
    for (const addrinfo* info = list; info != nullptr; info = info->ai_next, --num_left) {
        TcpPeer peer;
        std::memcpy(&peer.address, info->ai_addr, info->ai_addrlen);
        peer.address_size = info->ai_addrlen;
        peer.name = numeric_name(*info);
        const auto until = deadline_of_first(num_left, std::chrono::steady_clock::now(), deadline);
        const Result<> connected = try_connect(peer, until, cancellation);
        if (connected.ok()) return peer;
        last = connected.error();
        if (last.code == Code::kCancelled) break;
    }
    return last;
}

}  // namespace afd::client
