// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/first_contact.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "proto/crash_point.h"
#include "proto/socket_path.h"

namespace afd::daemon {

namespace {

using Clock = std::chrono::steady_clock;

void die_with_parent(int socket) {
    ucred peer{};
    socklen_t size = sizeof(peer);
    if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return;
    if (peer.pid == ::getppid()) ::prctl(PR_SET_PDEATHSIG, SIGKILL);
}

// Waits until the socket is ready for what the channel wants, or it may flush again, or the
// deadline is over.
Result<> wait_for_channel(ControlChannel& channel, Clock::time_point deadline) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    const bool is_short = channel.is_short();
    const short events = channel.wants_write() && !is_short ? POLLIN | POLLOUT : POLLIN;
    pollfd entry{channel.fd(), events, 0};
    const auto wait_ms = is_short ? std::min<int64_t>(left, ControlChannel::kRetryMs) : left;
    if (left > 0 &&
        (::poll(&entry, 1, static_cast<int>(wait_ms)) > 0 || errno == EINTR || is_short)) {
        return {};
    }
    return Error{Code::kDeadlineExceeded, "afdd did not answer the Hello of this worker in time"};
}

}  // namespace

Result<UniqueFd> connect_to_afdd(const std::string& path) {
    AFD_ASSIGN(const sockaddr_un address, socket_address(path));
    UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!fd.valid() ||
        ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
        const Code code = errno == ENOENT ? Code::kNotFound : Code::kUnavailable;
        return Error{code,
                     "cannot connect to afdd at '" + path + "': " + std::strerror(errno) +
                         "; is the instance running?"};
    }
    die_with_parent(fd.get());
    return fd;
}

Result<control::Welcome> say_hello(ControlChannel& channel,
                                   control::Role role,
                                   uint32_t index,
                                   Clock::time_point deadline) {
    control::WorkerMessage hello;
    hello.mutable_hello()->set_role(role);
    hello.mutable_hello()->set_index(index);
    hello.mutable_hello()->set_pid(static_cast<uint32_t>(::getpid()));
    hello.mutable_hello()->set_version(kControlVersion);
    channel.queue(hello);
    control::SupervisorMessage answer;
    AFD_TRY(await_message(channel, answer, deadline));
    AFD_CRASH_POINT("start.answered");
    if (answer.has_refused()) {
        return Error{static_cast<Code>(answer.refused().code()),
                     "afdd refuses this worker: " + answer.refused().message()};
    }
    const size_t num_fds = answer.welcome().num_fds();
    const auto num_segments = static_cast<size_t>(answer.welcome().segments_size());
    if (!answer.has_welcome() || num_fds == 0 || num_fds > ControlChannel::kFdsMax) {
        return Error{Code::kDataLoss, "afdd answered the Hello with something else"};
    }
    if (num_segments >= num_fds) {
        return Error{Code::kDataLoss, "the Welcome of afdd names more segments than it brings"};
    }
    return std::move(*answer.mutable_welcome());
}

Result<> await_message(ControlChannel& channel,
                       control::SupervisorMessage& message,
                       Clock::time_point deadline) {
    while (true) {
        AFD_TRY(channel.flush());
        AFD_TRY(wait_for_channel(channel, deadline));
        const Result<> read = channel.read();
        AFD_ASSIGN(const bool complete, channel.next(message));
        if (complete) return {};
        if (!read.ok()) return read.error();
    }
}

}  // namespace afd::daemon
