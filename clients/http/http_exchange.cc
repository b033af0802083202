// SPDX-License-Identifier: Apache-2.0
#include "clients/http/http_exchange.h"

#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string_view>

namespace afd::client {
namespace {

struct Socket {
    explicit Socket(int socket) : fd(socket) {}
    Socket(const Socket&) = delete;
    Socket& operator=(const Socket&) = delete;
    ~Socket() { ::close(fd); }

    const int fd;
};

}  // namespace

Result<HttpAnswer> exchange_http(const TcpPeer& peer,
                                 const std::string& request,
                                 std::chrono::steady_clock::time_point deadline,
                                 const Cancellation& cancellation) {
    AFD_ASSIGN(const int fd, begin_connect(peer));
    const Socket socket(fd);
    AFD_TRY(end_connect(fd, peer, deadline, cancellation));
    for (std::string_view rest = request; !rest.empty();) {
        const ssize_t sent = ::send(fd, rest.data(), rest.size(), MSG_NOSIGNAL);
        if (sent > 0) {
            rest.remove_prefix(static_cast<size_t>(sent));
        } else if (errno == EAGAIN || errno == EINTR) {
            AFD_TRY(wait_for_socket(fd, POLLOUT, deadline, cancellation));
        } else {
            break;  // What the server has said before it stopped reading is worth more.
        }
    }
    HttpResponseReader reader;
    HttpAnswer answer;
    while (!reader.is_done() && answer.body.size() < kAnswerBytesMax) {
        AFD_TRY(wait_for_socket(fd, POLLIN, deadline, cancellation));
        std::array<char, 16384> bytes;
        const ssize_t size = ::recv(fd, bytes.data(), bytes.size(), 0);
        if (size < 0 && (errno == EAGAIN || errno == EINTR)) continue;
        if (size < 0) return explain_socket_error(peer, errno);
        if (size == 0) {
            AFD_TRY(reader.end());
        } else {
            AFD_TRY(reader.append({bytes.data(), static_cast<size_t>(size)}));
        }
        if (reader.has_head()) answer.body += reader.take_body();
    }
    answer.head = reader.head();
    return answer;
}

}  // namespace afd::client
