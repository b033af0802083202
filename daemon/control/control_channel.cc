// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/control_channel.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace afd::daemon {

namespace {

// The kernel takes 253 descriptors in a message (SCM_MAX_FD), and an instance may have 1024
// sessions.
constexpr size_t kFdsPerMessageMax = 253;
constexpr size_t kFdsPerPiece = 250;
constexpr size_t kReadBytes = size_t{64} << 10;

// Whether sendmsg() failed for want of room, and not for anything that the peer did. ETOOMANYREFS:
// the processes of this user have sent too many descriptors that nobody has taken.
bool is_shortage(int error) {
    return error == ENOBUFS || error == ENOMEM || error == ETOOMANYREFS;
}

Error peer_closed() {
    return Error{Code::kUnavailable, "the peer closed the control socket"};
}

}  // namespace

ControlChannel::ControlChannel(UniqueFd socket, size_t fds_max)
    : socket_(std::move(socket)), fds_max_(fds_max) {
    const int flags = ::fcntl(socket_.get(), F_GETFL);
    AFD_ASSERT(flags >= 0 && ::fcntl(socket_.get(), F_SETFL, flags | O_NONBLOCK) == 0,
               "fcntl of socket %d: %s",
               socket_.get(),
               std::strerror(errno));
}

Result<> ControlChannel::read(size_t bytes_max) {
    std::array<char, kReadBytes> bytes;
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kFdsPerMessageMax)> control;
    for (size_t num_taken = 0; num_taken < bytes_max;) {
        iovec part{bytes.data(), bytes.size()};
        msghdr header{};
        header.msg_iov = &part;
        header.msg_iovlen = 1;
        header.msg_control = control.data();
        header.msg_controllen = control.size();
        const ssize_t size = ::recvmsg(socket_.get(), &header, MSG_CMSG_CLOEXEC);
        if (size < 0 && errno == EINTR) continue;
        if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return {};
        if (size < 0) return peer_closed();
        for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
            if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
            const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
            for (size_t i = 0; i < count; ++i) {
                int fd = -1;
                std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
                received_fds_.emplace_back(fd);
            }
        }
        // Descriptors that did not fit are gone: without this a worker would ring somebody else's
        // doorbell.
        if (received_fds_.size() > fds_max_) {
            return Error{Code::kDataLoss,
                         "it sent " + std::to_string(received_fds_.size()) + " descriptors; " +
                             std::to_string(fds_max_) + " are taken"};
        }
        if ((header.msg_flags & MSG_CTRUNC) != 0) {
            return Error{Code::kDataLoss,
                         "descriptors of a control message are lost; is the limit of open files "
                         "too low?"};
        }
        if (size == 0) return peer_closed();
        reader_.append({bytes.data(), static_cast<size_t>(size)});
        num_taken += static_cast<size_t>(size);
        if (!received_fds_.empty() && received_fds_.size() + kFdsPerMessageMax > fds_max_) break;
    }
    return {};
}

Result<std::vector<UniqueFd>> ControlChannel::take_fds(size_t count) {
    if (received_fds_.size() < count) {
        return Error{Code::kDataLoss,
                     "the control message announces " + std::to_string(count) +
                         " descriptors, but " + std::to_string(received_fds_.size()) + " came"};
    }
    std::vector<UniqueFd> taken;
    taken.reserve(count);
    for (size_t i = 0; i < count; ++i) {
        taken.push_back(std::move(received_fds_.front()));
        received_fds_.pop_front();
    }
    return taken;
}

void ControlChannel::close() {
    socket_.reset();
    received_fds_.clear();
    pieces_.clear();
    queued_bytes_ = 0;
    num_leaving_ = 0;
}

void ControlChannel::queue_bytes(std::string bytes, std::span<const int> fds) {
    queued_bytes_ += bytes.size();
    // Every piece but the last carries one byte: descriptors come with a Welcome, which has more
    // bytes than the seventeen pieces that kFdsMax needs.
    size_t at = 0;
    while (fds.size() > kFdsPerPiece) {
        AFD_ASSERT(at + 1 < bytes.size(), "%zu descriptors beside %zu bytes", fds.size(), at);
        pieces_.push_back({bytes.substr(at++, 1), {fds.begin(), fds.begin() + kFdsPerPiece}, 0});
        fds = fds.subspan(kFdsPerPiece);
    }
    pieces_.push_back({bytes.substr(at), {fds.begin(), fds.end()}, 0});
}

Result<> ControlChannel::flush() {
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kFdsPerPiece)> control;
    is_short_ = false;
    while (!pieces_.empty()) {
        Piece& piece = pieces_.front();
        iovec part{piece.bytes.data() + piece.sent, piece.bytes.size() - piece.sent};
        msghdr header{};
        header.msg_iov = &part;
        header.msg_iovlen = 1;
        // With the first byte only: a second sendmsg of the rest would send them twice.
        if (piece.sent == 0 && !piece.fds.empty()) {
            const size_t fd_bytes = piece.fds.size() * sizeof(int);
            control.fill(0);
            header.msg_control = control.data();
            header.msg_controllen = CMSG_SPACE(fd_bytes);
            cmsghdr* c = CMSG_FIRSTHDR(&header);
            c->cmsg_level = SOL_SOCKET;
            c->cmsg_type = SCM_RIGHTS;
            c->cmsg_len = CMSG_LEN(fd_bytes);
            std::memcpy(CMSG_DATA(c), piece.fds.data(), fd_bytes);
        }
        const ssize_t size = ::sendmsg(socket_.get(), &header, MSG_NOSIGNAL);
        if (size < 0 && errno == EINTR) continue;
        if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return {};
        if (size < 0 && is_shortage(errno)) {
            is_short_ = true;
            return {};
        }
        if (size < 0 && (errno == EPIPE || errno == ECONNRESET)) return peer_closed();
        if (size < 0) {
            return Error{Code::kUnavailable,
                         std::string("cannot send to the control socket: ") + std::strerror(errno)};
        }
        piece.sent += static_cast<size_t>(size);
        queued_bytes_ -= static_cast<size_t>(size);
        if (piece.sent < piece.bytes.size()) continue;
        num_leaving_ -= piece.leaving.size();
        pieces_.pop_front();
    }
    return {};
}

}  // namespace afd::daemon
