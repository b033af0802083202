// SPDX-License-Identifier: Apache-2.0
#include "clients/load/http_link.h"

#include <fmt/core.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "clients/load/http_target.h"
#include "proto/check.h"

namespace afd::client {
namespace {

constexpr size_t kWholeBytesMax = size_t{1} << 20;

bool is_stream(const HttpHead& head) {
    return head.status == 200 && head.content_type.starts_with("text/event-stream");
}

Failure failure_of(const HttpHead& head, const std::string& body) {
    if (head.status == 429 || head.status == 503) {
        return {fmt::format("refused (HTTP {})", head.status),
                {Code::kResourceExhausted, error_text(body)}};
    }
    if (head.status != 200) {
        return {fmt::format("HTTP {}", head.status), {Code::kUnavailable, error_text(body)}};
    }
    return {"no event stream",
            {Code::kDataLoss,
             fmt::format("an answer of the type '{}' instead of a stream of events: {}",
                         head.content_type,
                         error_text(body))}};
}

}  // namespace

HttpLink::~HttpLink() {
    ::close(socket_);
}

void HttpLink::begin(uint64_t request_id, std::string request) {
    AFD_ASSERT(is_idle(), "request %llu", static_cast<unsigned long long>(request_id));
    request_id_ = request_id;
    answer_ = Answer::kAwaited;
    out_ = std::move(request);
    sent_ = 0;
    event_reader_ = {};
    completion_ = {};
    whole_.clear();
}

void HttpLink::on_ready(std::vector<DoorEvent>& events) {
    if (connection_ == State::kConnecting) {
        const Result<> connected = connect_error(socket_, peer_);
        if (!connected.ok()) {
            break_with({"cannot connect", connected.error()}, events);
            return;
        }
        connection_ = State::kOpen;
    }
    write(events);
    if (!is_broken()) read(events);
}

void HttpLink::write(std::vector<DoorEvent>& events) {
    while (sent_ < out_.size()) {
        const ssize_t size =
            ::send(socket_, out_.data() + sent_, out_.size() - sent_, MSG_NOSIGNAL);
        if (size < 0 && errno == EINTR) continue;
        if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
        if (size < 0) {
            const int error_number = errno;
            // What the server said before is still to be read: it may be why.
            read(events);
            if (!is_broken()) on_closed(explain_socket_error(peer_, error_number), events);
            return;
        }
        sent_ += static_cast<size_t>(size);
    }
}

void HttpLink::read(std::vector<DoorEvent>& events) {
    std::array<char, 32768> bytes;
    while (!is_broken()) {
        const ssize_t size = ::recv(socket_, bytes.data(), bytes.size(), 0);
        if (size < 0 && errno == EINTR) continue;
        if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
        if (size < 0) {
            on_closed(explain_socket_error(peer_, errno), events);
            return;
        }
        if (size == 0) {
            const bool is_due = answer_ != Answer::kNone;
            const Result<> ended = is_due ? reader_.end() : Result<>();
            if (ended.ok() && is_due) take_body(events);
            on_closed(ended.ok()
                          ? afd::Error{Code::kUnavailable, "the server closed the connection"}
                          : ended.error(),
                      events);
            return;
        }
        if (answer_ == Answer::kNone) {
            // Bytes that answer nothing: who knows what comes behind them.
            connection_ = State::kBroken;
            return;
        }
        answer_ = Answer::kBegun;
        const Result<> parsed = reader_.append({bytes.data(), static_cast<size_t>(size)});
        if (!parsed.ok()) {
            break_with({"malformed answer", parsed.error()}, events);
            return;
        }
        if (reader_.has_head()) take_body(events);
    }
}

void HttpLink::take_body(std::vector<DoorEvent>& events) {
    const HttpHead head = reader_.head();
    const std::string body = reader_.take_body();
    if (is_stream(head)) {
        const Result<> read = event_reader_.append(body, stream_events_);
        take_events(events);
        if (!read.ok()) break_with({"malformed answer", read.error()}, events);
    } else if (whole_.size() < kWholeBytesMax) {
        whole_ += body;
    }
    if (is_broken() || !reader_.is_done()) return;
    if (!is_stream(head) && request_id_ != 0) fail(failure_of(head, whole_), events);
    end_answer(events);
    if (!head.keeps_alive) connection_ = State::kBroken;
}

void HttpLink::take_events(std::vector<DoorEvent>& events) {
    for (const std::string& data : stream_events_) {
        if (request_id_ == 0) break;  // Over.
        DoorEvent event;
        event.request_id = request_id_;
        if (const auto failure = completion_.take(data, event.num_tokens)) {
            break_with(*failure, events);
        } else if (completion_.is_over()) {
            if (const auto missing = completion_.finish(event)) {
                break_with(*missing, events);
            } else {
                events.push_back(std::move(event));
                request_id_ = 0;
            }
        } else if (event.num_tokens > 0) {
            events.push_back(std::move(event));
        }
    }
    stream_events_.clear();
}

// The answer is complete as HTTP has it.
void HttpLink::end_answer(std::vector<DoorEvent>& events) {
    if (request_id_ != 0) {
        break_with(
            {"no end marker",
             {Code::kDataLoss, "the stream ended without data: [DONE], so it may be cut off"}},
            events);
        return;
    }
    answer_ = Answer::kNone;
    was_used_ = true;
    // Answered before it was asked to the end: the server may take the rest for another request.
    if (sent_ < out_.size()) connection_ = State::kBroken;
    out_.clear();
    sent_ = 0;
    reader_.next();
}

// Nothing more is read.
void HttpLink::break_with(Failure failure, std::vector<DoorEvent>& events) {
    connection_ = State::kBroken;
    if (request_id_ != 0) fail(std::move(failure), events);
}

void HttpLink::fail(Failure failure, std::vector<DoorEvent>& events) {
    DoorEvent event;
    event.kind = DoorEvent::Kind::kFailed;
    event.request_id = std::exchange(request_id_, 0);
    event.failure = std::move(failure);
    events.push_back(std::move(event));
}

void HttpLink::on_closed(const afd::Error& error, std::vector<DoorEvent>& events) {
    // A server may close what has been idle, at the moment in which it is used again.
    if (request_id_ != 0 && was_used_ && answer_ != Answer::kBegun) {
        connection_ = State::kBroken;
        return;
    }
    break_with({"cut off", error}, events);
}

std::optional<std::string> HttpLink::take_unasked() {
    if (!is_broken() || request_id_ == 0) return std::nullopt;
    return std::move(out_);
}

}  // namespace afd::client
