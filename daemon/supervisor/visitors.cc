// SPDX-License-Identifier: Apache-2.0
#include "daemon/supervisor/visitors.h"

#include <algorithm>
#include <utility>

#include "daemon/program/logging.h"

namespace afd::daemon {

namespace {

constexpr uint64_t kHelloTimeoutMs = 2000;

}  // namespace

struct Visitors::Visitor {
    Visitor(Visitors& visitors, UniqueFd socket, int peer_pid)
        : channel(std::move(socket), 0),
          pid(peer_pid),
          watcher(
              std::make_unique<FdWatcher>(visitors.loop_,
                                          channel.fd(),
                                          [&visitors, this](int) { visitors.on_readable(*this); })),
          deadline(visitors.loop_, [&visitors, this] { visitors.on_deadline(*this); }) {
        watcher->watch(UV_READABLE);
        deadline.start(kHelloTimeoutMs);
    }

    ControlChannel channel;
    int pid;
    std::unique_ptr<FdWatcher> watcher;
    Timer deadline;
};

Visitors::Visitors(EventLoop& loop, Admit admit, IsOwn is_own)
    : loop_(loop), admit_(std::move(admit)), is_own_(std::move(is_own)) {}

Visitors::~Visitors() = default;

void Visitors::add(UniqueFd socket, PeerCredentials peer) {
    if (visitors_.size() >= num_max_ && is_own_(peer.pid)) make_room();
    if (visitors_.size() < num_max_) {
        visitors_.push_back(std::make_unique<Visitor>(*this, std::move(socket), peer.pid));
        return;
    }
    warn_of_refused(peer.pid, fmt::format("{} others have not said Hello", visitors_.size()));
}

// Else strangers that come again and again would keep all workers away.
void Visitors::make_room() {
    const auto oldest = std::ranges::find_if(
        visitors_, [this](const auto& visitor) { return !is_own_(visitor->pid); });
    if (oldest != visitors_.end()) dismiss(**oldest, "a worker of afdd needs its place");
}

void Visitors::on_deadline(Visitor& visitor) {
    // What came in time may not have been read, if afdd was stopped.
    if (!on_readable(visitor)) dismiss(visitor, "no Hello came in time");
}

// Returns whether the visitor is gone.
bool Visitors::on_readable(Visitor& visitor) {
    const Result<bool> served = serve(visitor);
    if (!served.ok()) {
        control::SupervisorMessage answer;
        answer.mutable_refused()->set_code(static_cast<uint32_t>(served.error().code));
        answer.mutable_refused()->set_message(served.error().message);
        visitor.channel.queue(answer);
        // One attempt: a visitor that does not read gets no answer.
        static_cast<void>(visitor.channel.flush().ok());
        dismiss(visitor, served.error().message);
        return true;
    }
    if (served.value()) dismiss(visitor, "");
    return served.value();
}

// Returns whether the visitor has become a worker.
Result<bool> Visitors::serve(Visitor& visitor) {
    // A failure is judged after the messages: what arrived before the end of the stream may be a
    // whole Hello.
    const Result<> read = visitor.channel.read(ControlChannel::kReadBytesPerTurn);
    control::WorkerMessage message;
    AFD_ASSIGN(const bool complete, visitor.channel.next(message));
    if (!complete) {
        AFD_TRY(read);
        return false;
    }
    if (!message.has_hello()) {
        return Error{Code::kFailedPrecondition, "the first message must be a Hello"};
    }
    // Who takes the channel watches the same descriptor, and libuv takes one watcher only.
    visitor.watcher.reset();
    AFD_TRY(admit_(visitor.channel, message.hello(), visitor.pid));
    return true;
}

void Visitors::dismiss(Visitor& visitor, const std::string& why) {
    if (!why.empty()) warn_of_refused(visitor.pid, why);
    std::erase_if(visitors_, [&](const auto& entry) { return entry.get() == &visitor; });
}

// Any process of this user can be one, as often as it likes.
void Visitors::warn_of_refused(int pid, const std::string& why) {
    const auto num_unsaid = refused_.take(loop_.now_ms());
    if (!num_unsaid) return;
    log::warn("refused a worker connection of pid {}: {}{}", pid, why, LogLimit::more(*num_unsaid));
}

}  // namespace afd::daemon
