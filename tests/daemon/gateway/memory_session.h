// SPDX-License-Identifier: Apache-2.0
#pragma once

// MemorySession: a second implementation of ClientSession, without sockets. It takes a given number
// of bytes and keeps the rest queued, as a client does that reads slowly or not at all; the test
// says when it reads on, asks and hangs up.

#include <cstddef>
#include <deque>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/gateway/session/client_session.h"
#include "proto/check.h"

namespace afd::daemon {

class MemorySession final : public ClientSession {
  public:
    static constexpr size_t kReadsAll = std::numeric_limits<size_t>::max();

    // `owner` has it; the reference stays valid until that has destroyed it.
    static MemorySession& open(SessionOwner& owner, std::string name) {
        auto session = std::make_unique<MemorySession>(owner, std::move(name));
        MemorySession& opened = *session;
        owner.adopt(std::move(session));
        return opened;
    }

    MemorySession(SessionOwner& owner, std::string name)
        : owner_(owner), identity_{"account of " + name, std::move(name)} {}
    ~MemorySession() override {
        if (is_destroyed != nullptr) *is_destroyed = true;
    }

    const ClientIdentity& identity() const override { return identity_; }
    void send(const client::Response& response) override {
        if (!is_open_) return;
        queue_.push_back(response);
        queued_bytes_ += response.ByteSizeLong();
    }
    void flush() override {
        ++num_flushes;
        take();
        if (closes_in_flush) close();
    }
    size_t queued_bytes() const override { return queued_bytes_; }
    bool is_within_request() const override { return has_sent_half; }
    void close() override {
        if (!is_open_) return;
        is_open_ = false;
        queue_.clear();
        queued_bytes_ = 0;
        ++num_closes;
        owner_.on_closed(*this);
    }
    bool is_open() const override { return is_open_; }
    std::optional<HandedConnection> hand_over() override {
        if (cannot_leave) return std::nullopt;
        HandedConnection handed;
        handed.unread = identity_.name;
        close();
        return handed;
    }
    void stay() override { ++num_stays; }

    // The client's side.
    void ask(const client::Request& request) { owner_.on_request(*this, request); }
    // It will read `bytes` more and then stop.
    void read(size_t bytes) {
        will_read_ = bytes;
        take();
        owner_.on_progress(*this);
    }

    const client::Response* last(uint64_t request_id) const {
        for (auto it = answers.rbegin(); it != answers.rend(); ++it) {
            if (it->request_id() == request_id) return &*it;
        }
        return nullptr;
    }
    std::string text(uint64_t request_id) const {
        std::string text;
        for (const auto& answer : answers) {
            if (answer.request_id() == request_id) text += answer.chunk().text();
        }
        return text;
    }

    std::vector<client::Response> answers;  // What the client has read.
    int num_flushes = 0;
    int num_closes = 0;
    int num_stays = 0;
    bool has_sent_half = false;  // Of a request.
    bool cannot_leave = false;
    bool closes_in_flush = false;  // The next write finds the client gone.
    bool* is_destroyed = nullptr;

  private:
    void take() {
        while (!queue_.empty() && will_read_ >= queue_.front().ByteSizeLong()) {
            const size_t bytes = queue_.front().ByteSizeLong();
            if (will_read_ != kReadsAll) will_read_ -= bytes;
            queued_bytes_ -= bytes;
            answers.push_back(std::move(queue_.front()));
            queue_.pop_front();
        }
    }

    SessionOwner& owner_;
    const ClientIdentity identity_;
    std::deque<client::Response> queue_;
    size_t queued_bytes_ = 0;
    size_t will_read_ = kReadsAll;
    bool is_open_ = true;
};

}  // namespace afd::daemon
