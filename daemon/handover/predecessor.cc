// SPDX-License-Identifier: Apache-2.0
#include "daemon/handover/predecessor.h"

#include <poll.h>

#include <utility>

#include "proto/failure.h"

namespace afd::daemon {

namespace {

// It is sent before this process is started.
constexpr int kOfferMs = 10'000;
// The channel keeps room for a whole message of 253; so it has at most 32 more,
// which are within what is kept free for such moments (file_budget.h). If it took all that are on
// their way, some could be lost for want of descriptors, and the upgrade with them.
constexpr size_t kUnclaimedFdsMax = 253 + 32;

}  // namespace

Predecessor::Predecessor(UniqueFd socket) : channel_(std::move(socket), kUnclaimedFdsMax) {}

Result<std::unique_ptr<Predecessor>> Predecessor::meet(UniqueFd socket) {
    std::unique_ptr<Predecessor> predecessor(new Predecessor(std::move(socket)));
    AFD_TRY(predecessor->read_offer());
    const uint32_t version = predecessor->offer_.version();
    if (version != kHandoverVersion) {
        const Error error = failed_precondition(
            "the afdd that runs hands over in version {}, this one takes over in version {}: stop "
            "it and start this one",
            with(version, kHandoverVersion));
        predecessor->say_failed(error.message);
        return error;
    }
    return predecessor;
}

void Predecessor::refuse(UniqueFd socket, const std::string& why) {
    Predecessor(std::move(socket)).say_failed(why);
}

Result<> Predecessor::read_offer() {
    handover::ToNew message;
    Result<> read;
    while (true) {
        // An offer counts, also if it was the last that its sender could do.
        AFD_ASSIGN(const bool has_come, channel_.next(message));
        if (has_come) break;
        AFD_TRY(read);
        pollfd entry{channel_.fd(), POLLIN, 0};
        if (::poll(&entry, 1, kOfferMs) == 0) {
            return Error{Code::kDeadlineExceeded, "the afdd that runs offers nothing"};
        }
        read = channel_.read();
    }
    if (!message.has_offer()) return Error{Code::kDataLoss, "the first message is no offer"};
    offer_ = message.offer();
    AFD_ASSIGN(std::vector<UniqueFd> lock, channel_.take_fds(1));
    lock_ = std::move(lock.front());
    AFD_ASSIGN(doors_, channel_.take_fds(static_cast<size_t>(offer_.doors_size())));
    return {};
}

UniqueFd Predecessor::take_door(std::string_view kind, std::string_view address) {
    for (int i = 0; i < offer_.doors_size(); ++i) {
        const handover::Door& door = offer_.doors(i);
        if (door.kind() == kind && door.address() == address) {
            return std::move(doors_[static_cast<size_t>(i)]);
        }
    }
    return {};
}

void Predecessor::drop_doors() {
    for (UniqueFd& door : doors_) door.reset();
}

void Predecessor::listen(EventLoop& loop, PredecessorListener& listener) {
    listener_ = &listener;
    wire_ = std::make_unique<HandoverWire>(
        loop,
        channel_,
        [this] { return take_messages(); },
        [this](const Error& error) { on_end(error); });
}

void Predecessor::on_end(const Error& error) {
    // The watcher before its socket.
    wire_.reset();
    if (error.code != Code::kUnavailable) {
        say_failed("it cannot read what it is handed: " + error.message);
    }
    has_gone_ = true;
    // It would hand over the rest to nobody, and wait for ever until all of it is read.
    channel_.close();
    listener_->on_predecessor_gone(error);
}

void Predecessor::send(const handover::ToOld& message) {
    if (has_gone_) return;
    if (wire_ != nullptr) {
        wire_->send(message);
    } else {
        channel_.queue(message);
        static_cast<void>(channel_.flush());
    }
}

void Predecessor::say_progress(const std::string& text) {
    handover::ToOld message;
    message.mutable_progress()->set_text(text);
    send(message);
}

void Predecessor::say_ready(std::string_view version, const std::vector<std::string_view>& kept) {
    handover::ToOld message;
    message.mutable_ready()->set_version(std::string(version));
    for (const std::string_view kind : kept) message.mutable_ready()->add_kept(std::string(kind));
    send(message);
}

void Predecessor::say_ending() {
    handover::ToOld message;
    message.mutable_ending();
    send(message);
}

void Predecessor::say_failed(const std::string& text) {
    handover::ToOld message;
    message.mutable_failed()->set_message(text);
    send(message);
}

Result<> Predecessor::take_messages() {
    while (true) {
        handover::ToNew message;
        AFD_ASSIGN(const bool has_come, channel_.next(message));
        if (!has_come) return {};
        AFD_TRY(on_message(message));
    }
}

Result<> Predecessor::on_message(handover::ToNew& message) {
    switch (message.body_case()) {
        case handover::ToNew::kGo:
            listener_->on_go();
            return {};
        case handover::ToNew::kPart: {
            handover::Part& part = *message.mutable_part();
            unread_ += part.unread();
            unsent_ += part.unsent();
            for (std::string& chunk : *part.mutable_chunks()) chunks_.push_back(std::move(chunk));
            return {};
        }
        case handover::ToNew::kConnection:
            return on_connection(message.connection());
        case handover::ToNew::kStream:
            on_stream(*message.mutable_stream());
            return {};
        case handover::ToNew::kRemaining:
            listener_->on_remaining(message.remaining());
            return {};
        case handover::ToNew::kOffer:
        case handover::ToNew::BODY_NOT_SET:
            break;
    }
    return Error{Code::kDataLoss, "the afdd before this one says something that makes no sense"};
}

Result<> Predecessor::on_connection(const handover::Connection& connection) {
    AFD_ASSIGN(std::vector<UniqueFd> sockets, channel_.take_fds(1));
    HandedConnection handed;
    handed.door = connection.door() == kHttpDoor ? kHttpDoor : kSocketDoor;
    handed.socket = std::move(sockets.front());
    handed.unread = std::exchange(unread_, {});
    handed.unsent = std::exchange(unsent_, {});
    listener_->take(std::move(handed));
    return {};
}

void Predecessor::on_stream(handover::Stream& stream) {
    HandedStream handed;
    handed.id = stream.id();
    handed.account = stream.account();
    handed.name = stream.name();
    handed.accepted = std::move(*stream.mutable_accepted());
    handed.chunks = std::exchange(chunks_, {});
    handed.end = std::move(*stream.mutable_end());
    handed.first_place = stream.first_place();
    handed.num_tokens_before = stream.num_tokens_before();
    handed.grace_ms = stream.grace_ms();
    handed.form = stream.form();
    handed.is_unheard = stream.is_unheard();
    listener_->take(std::move(handed));
}

}  // namespace afd::daemon
