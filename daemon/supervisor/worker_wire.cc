// SPDX-License-Identifier: Apache-2.0
#include "daemon/supervisor/worker_wire.h"

#include <fmt/core.h>

#include <utility>

#include "proto/failure.h"

namespace afd::daemon {

WorkerWire::WorkerWire(EventLoop& loop, std::string worker, ControlChannel channel, Owner owner)
    : worker_(std::move(worker)),
      owner_(std::move(owner)),
      channel_(std::move(channel)),
      watcher_(loop, channel_.fd(), [this](int events) { on_socket(events); }),
      flush_retry_(loop, [this] { flush(); }),
      next_turn_(loop, [this] { take_turn(); }) {
    watcher_.watch(UV_READABLE);
    // Messages that came right behind the Hello are read already: no event of the socket tells.
    next_turn_.ask();
}

void WorkerWire::send(const control::SupervisorMessage& message, std::span<const int> fds) {
    channel_.queue(message, fds);
    flush();
}

Result<> WorkerWire::send(const control::SupervisorMessage& message, std::vector<UniqueFd> fds) {
    if (channel_.num_leaving() + fds.size() > kUnreadFdsMax) {
        return resource_exhausted("{} does not read what it is sent: {} descriptors wait",
                                  with(worker_, channel_.num_leaving()));
    }
    channel_.queue(message, std::move(fds));
    flush();
    return {};
}

bool WorkerWire::count_answer() {
    if (!channel_.wants_write()) {
        num_unread_answers_ = 0;
        return true;
    }
    if (num_unread_answers_ > kUnreadAnswersMax) return false;
    if (++num_unread_answers_ <= kUnreadAnswersMax) return true;
    owner_.on_fault(fmt::format("it reads none of {} answers to what it asked", kUnreadAnswersMax));
    return false;
}

void WorkerWire::answer(const control::SupervisorMessage& message) {
    if (count_answer()) send(message);
}

Result<> WorkerWire::answer(const control::SupervisorMessage& message, std::vector<UniqueFd> fds) {
    return count_answer() ? send(message, std::move(fds)) : Result<>();
}

void WorkerWire::flush() {
    const Result<> sent = channel_.flush();
    // Where it failed, the end of the process, or on_socket(), tells the rest.
    watcher_.watch(UV_READABLE | (sent.ok() ? flush_retry_.after(channel_) : 0));
}

void WorkerWire::on_socket(int events) {
    if ((events & UV_WRITABLE) != 0) flush();
    // What waits from the last turn comes first, in the turn that was asked for.
    if ((events & UV_READABLE) != 0 && !next_turn_.is_asked()) take_turn();
}

void WorkerWire::take_turn() {
    TurnBudget budget;
    if (!take_messages(&budget)) return;
    const Result<> read = channel_.read(ControlChannel::kReadBytesPerTurn);
    // Nothing more comes after an error, so what came before it is no burden.
    if (!take_messages(read.ok() ? &budget : nullptr) || read.ok()) return;
    watcher_.watch(0);
    if (read.error().code == Code::kDataLoss) {
        owner_.on_fault("it sent bad bytes: " + read.error().message);
    } else {
        owner_.on_closed();
    }
}

bool WorkerWire::take_messages(TurnBudget* budget) {
    control::WorkerMessage message;
    while (budget == nullptr || budget->take()) {
        const Result<bool> next = channel_.next(message);
        if (!next.ok()) {
            watcher_.watch(0);
            owner_.on_fault("it sent bad bytes: " + next.error().message);
            return false;
        }
        if (!next.value()) return true;
        owner_.on_message(message);
    }
    next_turn_.ask();
    return false;
}

void WorkerWire::take_rest() {
    static_cast<void>(channel_.read().ok());
    take_messages(nullptr);
}

}  // namespace afd::daemon
