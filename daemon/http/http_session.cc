// SPDX-License-Identifier: Apache-2.0
#include "daemon/http/http_session.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <utility>

#include "daemon/http/request_checks.h"

namespace afd::daemon {

namespace {

constexpr size_t kSocketReadBytes = size_t{64} << 10;
constexpr int kSocketReadsPerTurn = 16;
// Timers run before sockets are read: after a halt of this process the rest of a request may have
// arrived long ago.
constexpr uint64_t kLateRestMs = 500;

}  // namespace

HttpSession::HttpSession(EventLoop& loop,
                         UniqueFd socket,
                         ClientIdentity identity,
                         SessionOwner& owner,
                         std::shared_ptr<HttpServices> services)
    : loop_(loop),
      socket_(std::move(socket)),
      identity_(std::move(identity)),
      owner_(owner),
      services_(std::move(services)),
      reader_(services_->body_bytes_max),
      half_request_(loop, [this] { on_half_request_timeout(); }),
      unread_(loop, [this] { on_unread(); }),
      next_turn_(loop, [this] { on_turn(); }),
      watcher_(std::make_unique<FdWatcher>(
          loop, socket_.get(), [this](int events) { on_ready(events); })) {
    watch();
}

void HttpSession::on_ready(int events) {
    if ((events & UV_WRITABLE) != 0) {
        flush();
        if (is_open()) owner_.on_progress(*this);
    }
    if ((events & UV_READABLE) != 0 && is_open()) read();
}

void HttpSession::on_turn() {
    for (const uint64_t id : std::exchange(cancels_, {})) {
        if (!is_open()) return;
        client::Request request;
        request.set_request_id(next_id_++);
        request.mutable_cancel()->set_target(id);
        owner_.on_request(*this, request);
    }
    if (is_open()) read();
}

void HttpSession::read() {
    TurnBudget budget;
    std::array<char, kSocketReadBytes> bytes;
    // What waits from the last turn first.
    bool has_served_all = serve(budget);
    for (int i = 0; has_served_all && is_open() && i < kSocketReadsPerTurn; ++i) {
        if (is_ending_ || (is_busy() && reader_.held_bytes() > kAheadBytesMax)) break;
        const std::optional<std::string_view> arrived = socket_.receive(bytes);
        if (!arrived) {
            close();
            return;
        }
        if (arrived->empty()) break;
        reader_.append(*arrived);
        has_served_all = serve(budget);
    }
    if (!is_open()) return;
    if (!has_served_all) next_turn_.ask();
    settle();
}

void HttpSession::settle() {
    note_half_request();
    watch();
    // What the owner knows nothing of may have kept the session from leaving.
    if (is_open() && is_leaving() && !is_busy()) owner_.on_progress(*this);
}

bool HttpSession::serve(TurnBudget& budget) {
    // An answer that is not written yet holds back the next request, so that one client's answers
    // do not pile up.
    is_serving_ = true;
    while (is_open() && !is_ending_ && !is_busy() && is_written() && !is_leaving()) {
        if (!budget.take()) {
            is_serving_ = false;
            return false;
        }
        std::optional<HttpRequest> request = reader_.next();
        if (reader_.take_continue()) socket_.output() += kContinue;
        if (request) {
            half_request_.stop();
            handle(*std::move(request));
        } else if (reader_.refusal()) {
            refuse(*reader_.refusal());
        }
        flush();
        if (!request) break;
    }
    is_serving_ = false;
    return true;
}

void HttpSession::refuse(const ApiError& error) {
    if (is_ending_) return;
    owner_.on_refused(*this, error.message);
    end_with(error);
}

void HttpSession::end_with(const ApiError& error) {
    reader_.clear();
    services_->budget->hold(*this, 0);
    half_request_.stop();
    if (!served_) served_ = std::make_unique<Served>(Served{.id = request_id_of({})});
    served_->frame.closes = true;
    respond(HttpResponse::of(error));
}

void HttpSession::give_up(const std::string& why) {
    // Half an answer does not become another one.
    if (!is_written() || (is_generating() && exchange().has_head())) {
        owner_.on_refused(*this, why);
        close();
        return;
    }
    // The end of the connection, which follows, cancels what was asked for.
    refuse({.status = 503, .code = "overloaded", .message = why, .retry_after_s = 1});
    flush();
}

void HttpSession::note_half_request() {
    services_->budget->hold(*this, reader_.held_bytes() + (served_ ? served_->body_bytes : 0));
    if (!is_open() || is_busy() || is_ending_) return;
    // What waits for the next turn is for this side to do, not for the client. The timer goes on: a
    // turn that took too long may leave nothing but half a request behind.
    if (next_turn_.is_asked()) return;
    if (reader_.held_bytes() == 0 || !is_written()) {
        half_request_.stop();
    } else if (!half_request_.is_active()) {
        // From the first bytes on: bytes that trickle in do not start it anew.
        half_request_.start(services_->budget->timeout_ms());
        is_late_ = false;
    }
}

void HttpSession::on_half_request_timeout() {
    if (next_turn_.is_asked() || !std::exchange(is_late_, true)) {
        half_request_.start(kLateRestMs);
        return;
    }
    refuse({.status = 408,
            .code = "request_timeout",
            .message = fmt::format("half a request of {} bytes has waited for its rest for "
                                   "input_timeout_ms = {}",
                                   reader_.held_bytes(),
                                   services_->budget->timeout_ms())});
    flush();
}

void HttpSession::watch() {
    if (!is_open()) return;
    // A client whose requests wait is not read, so that the kernel holds it back.
    const bool is_read =
        !is_ending_ && !next_turn_.is_asked() && reader_.held_bytes() <= kAheadBytesMax;
    const int readable = is_read || (!is_busy() && !is_ending_ && is_written()) ? UV_READABLE : 0;
    watcher_->watch(is_written() ? readable : readable | UV_WRITABLE);
}

void HttpSession::flush() {
    if (!is_open()) return;
    const bool had_output = !is_written();
    if (!socket_.write()) {
        close();
        return;
    }
    note_written();
    if (is_written()) {
        // A connection that is idle keeps no memory of its last answer.
        if (!is_busy()) socket_.give_memory_back();
        if (is_ending_ && !is_busy()) {
            leave(true);
            return;
        }
        // The answer that held back the next request has gone.
        if (had_output && !is_serving_ && !is_busy() && reader_.held_bytes() > 0) next_turn_.ask();
    }
    watch();
}

void HttpSession::note_written() {
    uncounted_bytes_ = std::min(uncounted_bytes_, socket_.unsent_bytes());
    if (uncounted_bytes_ == 0) {
        unread_.stop();
    } else if (!unread_.is_active()) {
        taken_bytes_ = socket_.taken_bytes();
        unread_.start(services_->unread_ms, services_->unread_ms);
    }
}

void HttpSession::on_unread() {
    const int64_t before = std::exchange(taken_bytes_, socket_.taken_bytes());
    if (taken_bytes_ > before) return;
    owner_.on_refused(*this,
                      fmt::format("it has taken nothing of an answer for {} ms, of which {} bytes "
                                  "wait",
                                  services_->unread_ms,
                                  socket_.unsent_bytes()));
    close();
}

size_t HttpSession::queued_bytes() const {
    const size_t unsent = socket_.unsent_bytes();
    const size_t counted = unsent - std::min(unsent, uncounted_bytes_);
    return std::max(counted, std::min(unsent, kUncountedBytes));
}

void HttpSession::leave(bool politely) {
    if (!is_open()) return;
    // 499: who asked has gone.
    if (served_) {
        note_answer(499);
        served_->body.reset();
        served_->body_bytes = 0;
        if (served_->ping) served_->ping->stop();
    }
    // The object lives on until its owner buries it: this may be called from its own callbacks.
    watcher_.reset();
    UniqueFd socket = socket_.release();
    if (politely) services_->lingering.add(std::move(socket));
    end();
}

// Its socket is gone.
void HttpSession::end() {
    half_request_.stop();
    unread_.stop();
    reader_.clear();
    services_->budget->hold(*this, 0);
    owner_.on_closed(*this);
}

std::optional<HandedConnection> HttpSession::hand_over() {
    if (is_busy() || is_ending_ || !cancels_.empty() || !is_leaving()) return std::nullopt;
    HandedConnection handed;
    handed.door = kHttpDoor;
    handed.unread = reader_.unread();
    handed.unsent = socket_.unsent();
    // The watcher before its socket.
    watcher_.reset();
    handed.socket = socket_.release();
    end();
    return handed;
}

void HttpSession::begin_with(std::string_view unread, std::string_view unsent) {
    reader_.append(unread);
    socket_.output() += unsent;
    uncounted_bytes_ = socket_.unsent_bytes();
    note_written();
    has_served_ = true;
    next_turn_.ask();
    watch();
}

}  // namespace afd::daemon
