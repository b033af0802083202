// SPDX-License-Identifier: Apache-2.0
#include "daemon/loop/stream_socket.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace afd::daemon {
namespace {

bool would_wait() {
    return errno == EAGAIN || errno == EWOULDBLOCK;
}

}  // namespace

std::optional<std::string_view> StreamSocket::receive(std::span<char> memory) {
    ssize_t size = 0;
    do {
        size = ::recv(socket_.get(), memory.data(), memory.size(), MSG_DONTWAIT);
    } while (size < 0 && errno == EINTR);
    if (size > 0) return std::string_view(memory.data(), static_cast<size_t>(size));
    if (size < 0 && would_wait()) return std::string_view();
    return {};
}

bool StreamSocket::write() {
    const size_t end = std::min(output_.size(), num_sent_ + kWriteBytesMax);
    while (num_sent_ < end) {
        const ssize_t size = ::send(socket_.get(),
                                    output_.data() + num_sent_,
                                    end - num_sent_,
                                    MSG_DONTWAIT | MSG_NOSIGNAL);
        if (size < 0 && errno == EINTR) continue;
        if (size < 0 && would_wait()) break;
        if (size < 0) return false;
        num_sent_ += static_cast<size_t>(size);
        num_written_ += size;
    }
    // Moving the rest to the front costs; it is done when it at least halves the buffer.
    if (num_sent_ == output_.size() || num_sent_ > output_.size() / 2) {
        output_.erase(0, num_sent_);
        num_sent_ = 0;
    }
    return true;
}

int64_t StreamSocket::taken_bytes() const {
    int in_kernel = 0;
    if (::ioctl(socket_.get(), SIOCOUTQ, &in_kernel) != 0) in_kernel = 0;
    return num_written_ - in_kernel;
}

UniqueFd StreamSocket::release() {
    output_.clear();
    num_sent_ = 0;
    return std::exchange(socket_, UniqueFd());
}

}  // namespace afd::daemon
