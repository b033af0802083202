// SPDX-License-Identifier: Apache-2.0
#include "daemon/loop/acceptor.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "daemon/program/logging.h"

namespace afd::daemon {
namespace {

// The listening socket stays readable while descriptors are short; without a pause the loop spins.
constexpr uint64_t kRetryMs = 500;
// Whoever is short of descriptors is so for a while, and needs no line for each retry.
constexpr uint64_t kLinePeriodMs = 10'000;

}  // namespace

Acceptor::Acceptor(EventLoop& loop,
                   UniqueFd listening,
                   std::string name,
                   OnConnection on_connection)
    : loop_(loop),
      fd_(std::move(listening)),
      name_(std::move(name)),
      refusals_(kLinePeriodMs),
      on_connection_(std::move(on_connection)),
      watcher_(loop, fd_.get(), [this](int /*events*/) { accept_some(); }),
      retry_(loop, [this] { watcher_.watch(UV_READABLE); }) {
    watcher_.watch(UV_READABLE);
}

void Acceptor::pause() {
    watcher_.watch(0);
    retry_.stop();
}

void Acceptor::go_on() {
    watcher_.watch(UV_READABLE);
}

void Acceptor::accept_some() {
    for (int i = 0; i < kConnectionsPerTurn; ++i) {
        UniqueFd socket(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (!socket.valid() && (errno == EINTR || errno == ECONNABORTED)) continue;
        if (!socket.valid() && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
        if (!socket.valid()) {
            say_refused(errno);
            watcher_.watch(0);
            retry_.start(kRetryMs);
            return;
        }
        on_connection_(std::move(socket));
    }
}

void Acceptor::say_refused(int error) {
    if (const auto num_unsaid = refusals_.take(loop_.now_ms())) {
        log::warn("cannot accept a connection on '{}': {}{}",
                  name_,
                  std::strerror(error),
                  LogLimit::more(*num_unsaid));
    }
}

}  // namespace afd::daemon
