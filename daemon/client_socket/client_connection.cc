// SPDX-License-Identifier: Apache-2.0
#include "daemon/client_socket/client_connection.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <utility>

namespace afd::daemon {

namespace {

constexpr size_t kReadBytes = size_t{64} << 10;
// Reads of one turn of the loop, so that one client cannot keep the others waiting.
constexpr int kReadsPerTurn = 16;
// Timers run before sockets are read: after a halt of this process the rest of a frame may have
// arrived long ago.
constexpr uint64_t kLateReadMs = 500;
// What is kept for the next afdd; the rest stays in the kernel.
constexpr size_t kPutOffBytesMax = size_t{64} << 10;

// Whether it is the next afdd's, if there is one. What only asks how things are, and a Cancel, are
// of what runs here.
bool begins_something(const client::Request& request) {
    switch (request.body_case()) {
        case client::Request::kGenerate:
        case client::Request::kResume:
        case client::Request::kTrace:
        case client::Request::kDrain:
        case client::Request::kStop:
        case client::Request::kResize:
        case client::Request::kUpgrade:
            return true;
        default:
            return false;
    }
}

}  // namespace

ClientConnection::ClientConnection(EventLoop& loop,
                                   UniqueFd socket,
                                   ClientIdentity identity,
                                   SessionOwner& owner,
                                   std::shared_ptr<InputBudget> budget)
    : socket_(std::move(socket)),
      identity_(std::move(identity)),
      owner_(owner),
      budget_(std::move(budget)),
      half_frame_(loop, [this] { on_half_frame_timeout(); }),
      next_turn_(loop, [this] { read(); }),
      watcher_(std::make_unique<FdWatcher>(
          loop, socket_.get(), [this](int events) { on_ready(events); })) {
    watch();
}

void ClientConnection::on_ready(int events) {
    if ((events & UV_WRITABLE) != 0) {
        flush();
        if (is_open()) owner_.on_progress(*this);
    }
    if ((events & UV_READABLE) != 0 && is_open()) read();
}

void ClientConnection::read() {
    if (!is_open()) return;
    TurnBudget budget;
    std::array<char, kReadBytes> bytes;
    // What waits from the last turn first.
    bool has_served_all = serve_frames(budget);
    for (int i = 0; has_served_all && i < kReadsPerTurn; ++i) {
        const std::optional<std::string_view> arrived = socket_.receive(bytes);
        if (!arrived) {
            close();
            return;
        }
        if (arrived->empty()) break;
        reader_.append(*arrived);
        has_served_all = serve_frames(budget);
    }
    if (!is_open()) return;
    if (!has_served_all && reads_on()) next_turn_.ask();
    note_half_frame();
    watch();
}

void ClientConnection::note_half_frame() {
    budget_->hold(*this, reader_.held_bytes() + text_bytes_ + put_off_.size());
    if (!is_open()) return;
    // What waits for the next turn is for this side to do, not for the client. The timer goes on: a
    // turn that took too long may leave nothing but half a frame behind.
    if (next_turn_.is_asked() || !reads_on()) return;
    if (reader_.held_bytes() == 0) {
        half_frame_.stop();
    } else if (has_served_ || !half_frame_.is_active()) {
        // From the first bytes on: bytes that trickle in do not start it anew.
        half_frame_.start(budget_->timeout_ms());
        is_late_ = false;
    }
    has_served_ = false;
}

void ClientConnection::on_half_frame_timeout() {
    if (next_turn_.is_asked() || !reads_on()) {
        half_frame_.start(kLateReadMs);
        return;
    }
    if (!is_late_) {
        // Once for a frame, whatever arrives: bytes that trickle in do not gain more.
        is_late_ = true;
        half_frame_.start(kLateReadMs);
        return;
    }
    refuse(Code::kDeadlineExceeded,
           "half a request of " + std::to_string(reader_.held_bytes()) +
               " bytes has waited for its rest for input_timeout_ms = " +
               std::to_string(budget_->timeout_ms()));
}

void ClientConnection::give_up(const std::string& why) {
    refuse(Code::kResourceExhausted, why);
}

bool ClientConnection::serve_frames(TurnBudget& budget) {
    while (reads_on() && budget.take()) {
        const Result<std::optional<std::string_view>> frame = reader_.next();
        if (!frame.ok()) {
            refuse(Code::kDataLoss, frame.error().message);
            return false;
        }
        if (!frame.value()) return true;
        if (!serve(*frame.value())) return false;
    }
    return false;
}

bool ClientConnection::serve(std::string_view body) {
    client::Request request;
    if (!request.ParseFromArray(body.data(), static_cast<int>(body.size()))) {
        refuse(Code::kDataLoss,
               "a frame of " + std::to_string(body.size()) +
                   " bytes is not a Request of client.proto");
        return false;
    }
    has_served_ = true;
    if (!put_off(request, body)) owner_.on_request(*this, request);
    return is_open();
}

bool ClientConnection::put_off(const client::Request& request, std::string_view body) {
    if (!owner_.is_leaving()) return false;
    const bool cancels_one =
        request.has_cancel() &&
        std::count(ids_put_off_.begin(), ids_put_off_.end(), request.cancel().target()) > 0;
    if (!cancels_one && !begins_something(request)) return false;
    append_frame_of(body, put_off_);
    ids_put_off_.push_back(request.request_id());
    return true;
}

bool ClientConnection::reads_on() const {
    return !is_held_ && put_off_.size() <= kPutOffBytesMax;
}

std::optional<HandedConnection> ClientConnection::hand_over() {
    HandedConnection handed;
    handed.door = kSocketDoor;
    handed.unread = put_off_ + std::string(reader_.rest());
    handed.unsent = socket_.unsent();
    // The watcher before its socket.
    watcher_.reset();
    handed.socket = socket_.release();
    end();
    return handed;
}

void ClientConnection::stay() {
    const std::string rest(reader_.rest());
    reader_ = FrameReader();
    reader_.append(std::exchange(put_off_, {}));
    reader_.append(rest);
    ids_put_off_.clear();
    next_turn_.ask();
}

void ClientConnection::begin_with(std::string_view unread, std::string_view unsent) {
    reader_.append(unread);
    socket_.output() += unsent;
    next_turn_.ask();
    watch();
}

void ClientConnection::hold_input(size_t bytes) {
    is_held_ = true;
    text_bytes_ = bytes;
}

void ClientConnection::release_input() {
    if (!is_open()) return;
    is_held_ = false;
    text_bytes_ = 0;
    next_turn_.ask();
}

void ClientConnection::watch() {
    if (!is_open()) return;
    // A client whose requests wait is not read, so that the kernel holds it back.
    const int readable = next_turn_.is_asked() || !reads_on() ? 0 : UV_READABLE;
    watcher_->watch(queued_bytes() == 0 ? readable : readable | UV_WRITABLE);
}

void ClientConnection::refuse(Code code, const std::string& why) {
    owner_.on_refused(*this, why);
    client::Response response;
    response.mutable_error()->set_code(static_cast<uint32_t>(code));
    response.mutable_error()->set_message(why + "; this connection is closed");
    send(response);
    flush();
    close();
}

void ClientConnection::send(const client::Response& response) {
    if (!is_open()) return;
    if (fits_frame(response)) return append_frame(response, socket_.output());
    // The client would give the connection up, and with it all of its other requests.
    client::Response refused;
    refused.set_request_id(response.request_id());
    refused.mutable_error()->set_code(static_cast<uint32_t>(Code::kResourceExhausted));
    refused.mutable_error()->set_message(
        fmt::format("the answer has {} bytes, and a message at most {}",
                    response.ByteSizeLong(),
                    kFrameBytesMax));
    append_frame(refused, socket_.output());
}

void ClientConnection::flush() {
    if (!is_open()) return;
    if (!socket_.write()) {
        close();
        return;
    }
    watch();
}

void ClientConnection::close() {
    if (!is_open()) return;
    // The object lives on until its owner buries it: this may be called from its own callbacks.
    watcher_.reset();
    socket_.release();
    end();
}

// Its socket is gone.
void ClientConnection::end() {
    half_frame_.stop();
    reader_ = FrameReader();
    put_off_.clear();
    budget_->hold(*this, 0);
    owner_.on_closed(*this);
}

}  // namespace afd::daemon
