// SPDX-License-Identifier: Apache-2.0
#include "tests/clients/scripted_server.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <utility>

namespace afd::test {
namespace {

// Reads one request; false: the client has gone.
bool read_request(int socket, std::string& pending) {
    std::array<char, 4096> bytes;
    while (true) {
        const size_t head = pending.find("\r\n\r\n");
        if (head != std::string::npos) {
            const size_t field = pending.find("Content-Length: ");
            const size_t length =
                field < head ? std::strtoul(pending.c_str() + field + 16, nullptr, 10) : 0;
            if (pending.size() >= head + 4 + length) {
                pending.erase(0, head + 4 + length);
                return true;
            }
        }
        const ssize_t size = ::recv(socket, bytes.data(), bytes.size(), 0);
        if (size <= 0) return false;
        pending.append(bytes.data(), static_cast<size_t>(size));
    }
}

}  // namespace

ScriptedServer::ScriptedServer(Script script, Reads reads)
    : script_(std::move(script)), reads_(reads) {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    if (::bind(listener_, generic, size) != 0 || ::listen(listener_, SOMAXCONN) != 0 ||
        ::getsockname(listener_, generic, &size) != 0) {
        std::abort();
    }
    port_ = ntohs(address.sin_port);
    acceptor_ = std::thread([this] { accept_all(); });
}

ScriptedServer::~ScriptedServer() {
    ::shutdown(listener_, SHUT_RDWR);
    acceptor_.join();
    {
        const std::lock_guard lock(mutex_);
        for (const int socket : sockets_) ::shutdown(socket, SHUT_RDWR);
    }
    for (std::thread& thread : threads_) thread.join();
    for (const int socket : sockets_) ::close(socket);
    ::close(listener_);
}

void ScriptedServer::accept_all() {
    while (true) {
        const int socket = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
        if (socket < 0) return;
        const std::lock_guard lock(mutex_);
        ++num_connections_;
        sockets_.push_back(socket);
        threads_.emplace_back([this, socket] { serve(socket); });
    }
}

void ScriptedServer::serve(int socket) {
    std::string pending;
    char first = 0;
    const bool reads_nothing = reads_ == Reads::kNothing;
    if (reads_nothing && ::recv(socket, &first, 1, MSG_PEEK) != 1) return;
    while (reads_nothing || read_request(socket, pending)) {
        const ScriptedAnswer answer = script_(num_requests_++);
        size_t sent = 0;
        while (sent < answer.bytes.size()) {
            const ssize_t size = ::send(
                socket, answer.bytes.data() + sent, answer.bytes.size() - sent, MSG_NOSIGNAL);
            if (size <= 0) return;
            sent += static_cast<size_t>(size);
        }
        if (answer.closes) ::shutdown(socket, SHUT_RDWR);
        if (answer.closes || reads_nothing) return;
    }
}

}  // namespace afd::test
