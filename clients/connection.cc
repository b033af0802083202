// SPDX-License-Identifier: Apache-2.0
#include "clients/connection.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <thread>
#include <utility>

#include "clients/generate_progress.h"
#include "proto/socket_path.h"

namespace afd::client {
namespace {

// One receive() takes at most this much, so that a fast sender cannot hold the caller's loop.
constexpr size_t kReceiveBytesMax = size_t{1} << 20;

// The kernel has no event for "the listener's queue has room again".
constexpr std::chrono::milliseconds kConnectRetry{5};

}  // namespace

Result<Connection> Connection::connect(const Endpoint& endpoint, Clock::time_point deadline) {
    AFD_ASSIGN(const sockaddr_un address, socket_address(endpoint.socket_path));
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return afd::Error{Code::kResourceExhausted,
                          std::string("cannot make a socket: ") + std::strerror(errno)};
    }
    Connection connection(fd, endpoint.socket_path);
    while (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
        if (errno == EINTR) continue;
        if (errno != EAGAIN || Clock::now() >= deadline) {
            return explain_connect_failure(endpoint, errno);
        }
        std::this_thread::sleep_for(kConnectRetry);
    }
    return connection;
}

Connection::Connection(Connection&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      peer_(std::move(other.peer_)),
      reader_(std::move(other.reader_)),
      unsent_(std::move(other.unsent_)),
      num_sent_(std::exchange(other.num_sent_, 0)),
      error_(std::move(other.error_)) {}

Connection& Connection::operator=(Connection&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(peer_, other.peer_);
    std::swap(reader_, other.reader_);
    std::swap(unsent_, other.unsent_);
    std::swap(num_sent_, other.num_sent_);
    std::swap(error_, other.error_);
    return *this;
}

Connection::~Connection() {
    if (fd_ >= 0) close(fd_);
}

short Connection::events() const {
    return static_cast<short>(unsent_.empty() ? POLLIN : POLLIN | POLLOUT);
}

afd::Error Connection::fail(Code code, const std::string& what) {
    error_ = afd::Error{code, "connection to afdd at " + peer_ + ": " + what};
    return *error_;
}

Result<> Connection::send(const Request& request) {
    if (error_) return *error_;
    if (const size_t size = request.ByteSizeLong(); size > kFrameBytesMax) {
        return afd::Error{Code::kInvalidArgument,
                          "a request of " + std::to_string(size) + " bytes; afdd takes at most " +
                              std::to_string(kFrameBytesMax) + "; shorten the prompt"};
    }
    append_frame(request, unsent_);
    return flush();
}

Result<> Connection::flush() {
    if (error_) return *error_;
    while (num_sent_ < unsent_.size()) {
        const ssize_t n =
            ::send(fd_, unsent_.data() + num_sent_, unsent_.size() - num_sent_, MSG_NOSIGNAL);
        if (n >= 0) {
            num_sent_ += static_cast<size_t>(n);
        } else if (errno == EAGAIN) {
            break;
        } else if (errno == EPIPE || errno == ECONNRESET) {
            // What afdd said before it left may still be readable: receive() reports the end.
            num_sent_ = unsent_.size();
        } else if (errno != EINTR) {
            return fail(Code::kUnavailable, std::string("cannot send: ") + std::strerror(errno));
        }
    }
    // Not with each part that is sent: what waits may be much, and would be moved each time.
    if (num_sent_ * 2 >= unsent_.size()) {
        unsent_.erase(0, num_sent_);
        num_sent_ = 0;
    }
    return {};
}

Result<> Connection::receive(std::vector<Response>& responses) {
    if (error_) return *error_;
    std::array<char, 64 * 1024> buffer;
    for (size_t num_bytes = 0; num_bytes < kReceiveBytesMax;) {
        const ssize_t n = recv(fd_, buffer.data(), buffer.size(), 0);
        if (n > 0) {
            num_bytes += static_cast<size_t>(n);
            reader_.append(std::span(buffer).first(static_cast<size_t>(n)));
            AFD_TRY(parse_frames(responses));
        } else if (n == 0 || errno == ECONNRESET) {
            return fail(Code::kUnavailable,
                        "closed by afdd before all answers came; it was stopped or has crashed, "
                        "see its log");
        } else if (errno == EAGAIN) {
            return {};
        } else if (errno != EINTR) {
            return fail(Code::kUnavailable, std::string("cannot receive: ") + std::strerror(errno));
        }
    }
    return {};
}

Result<> Connection::parse_frames(std::vector<Response>& responses) {
    while (true) {
        const auto frame = reader_.next();
        if (!frame.ok()) {
            return fail(Code::kDataLoss,
                        frame.error().message + "; is this the socket of an afdd?");
        }
        if (!frame.value().has_value()) return {};
        const std::string_view bytes = *frame.value();
        Response response;
        if (!response.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())) ||
            response.body_case() == Response::BODY_NOT_SET) {
            return fail(Code::kDataLoss,
                        "a message of " + std::to_string(bytes.size()) +
                            " bytes is no response that this version knows; use the client that "
                            "came with this afdd");
        }
        if (response.request_id() == 0 && response.has_error()) {
            // afdd says so before it closes a connection whose bytes it could not read.
            const afd::Error error = to_error(response.error());
            return fail(error.code, error.message);
        }
        responses.push_back(std::move(response));
    }
}

}  // namespace afd::client
