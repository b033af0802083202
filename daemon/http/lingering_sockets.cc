// SPDX-License-Identifier: Apache-2.0
#include "daemon/http/lingering_sockets.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

namespace afd::daemon {

namespace {

constexpr int kDropsPerTurn = 16;

}  // namespace

LingeringSockets::LingeringSockets(EventLoop& loop)
    : loop_(loop), timer_(loop, [this] { close_old(); }) {}

void LingeringSockets::add(UniqueFd socket) {
    ::shutdown(socket.get(), SHUT_WR);
    if (entries_.size() == kSocketsMax) entries_.pop_front();
    entries_.emplace_back(loop_, std::move(socket), *this).watcher.watch(UV_READABLE);
    if (!timer_.is_active()) timer_.start(kLingerMs);
}

LingeringSockets::Entry::Entry(EventLoop& loop, UniqueFd given, LingeringSockets& owner)
    : socket(std::move(given)),
      watcher(loop, socket.get(), [&owner, fd = socket.get()](int) { owner.drop_input(fd); }),
      until_ms(loop.now_ms() + kLingerMs) {}

void LingeringSockets::drop_input(int fd) {
    std::array<char, 16384> bytes;
    for (int i = 0; i < kDropsPerTurn; ++i) {
        const ssize_t size = ::recv(fd, bytes.data(), bytes.size(), MSG_DONTWAIT);
        if (size > 0) continue;
        if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
        std::erase_if(entries_, [fd](const Entry& entry) { return entry.socket.get() == fd; });
        return;
    }
}

void LingeringSockets::close_old() {
    while (!entries_.empty() && entries_.front().until_ms <= loop_.now_ms()) entries_.pop_front();
    if (!entries_.empty()) timer_.start(entries_.front().until_ms - loop_.now_ms());
}

}  // namespace afd::daemon
