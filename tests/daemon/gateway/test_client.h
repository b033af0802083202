// SPDX-License-Identifier: Apache-2.0
#pragma once

// A client of a SessionOwner in the same process and on the same thread, over a socket.

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <memory>
#include <string>
#include <vector>

#include "daemon/client_socket/client_connection.h"

namespace afd::daemon {

// The client's end of a connection: sends requests, collects answers.
class TestClient {
  public:
    // `budget` of the connection; null: one of its own without a bound that matters.
    // `kernel_bytes`: what the kernel holds of unread answers, about; 0: as much as it likes.
    TestClient(EventLoop& loop,
               SessionOwner& owner,
               std::shared_ptr<InputBudget> budget = nullptr,
               int kernel_bytes = 0) {
        std::array<int, 2> fds{};
        EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds.data()),
                  0);
        socket_.reset(fds[0]);
        if (kernel_bytes > 0) {
            EXPECT_EQ(
                ::setsockopt(fds[1], SOL_SOCKET, SO_SNDBUF, &kernel_bytes, sizeof kernel_bytes), 0);
        }
        if (budget == nullptr) {
            budget = std::make_shared<InputBudget>(
                InputBudget::Limits{.bytes_max = size_t{1} << 30, .timeout_ms = 60'000});
        }
        owner.adopt(std::make_unique<ClientConnection>(loop,
                                                       UniqueFd(fds[1]),
                                                       ClientIdentity{"test", "test client"},
                                                       owner,
                                                       std::move(budget)));
    }

    void send(const client::Request& request) { ASSERT_TRUE(try_send(request)); }
    void send_bytes(const std::string& bytes) {
        ASSERT_EQ(::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
                  static_cast<ssize_t>(bytes.size()));
    }
    // Without waiting for room: false if the gateway has not read enough of what came before.
    [[nodiscard]] bool try_send(const client::Request& request) {
        std::string bytes;
        append_frame(request, bytes);
        const ssize_t sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN) return false;
        EXPECT_EQ(sent, static_cast<ssize_t>(bytes.size()));
        return true;
    }
    void close() { socket_.reset(); }

    // Takes what has arrived into `answers`.
    void receive() {
        std::array<char, 4096> bytes;
        while (true) {
            const ssize_t size = ::recv(socket_.get(), bytes.data(), bytes.size(), 0);
            if (size == 0) is_closed = true;
            if (size <= 0) break;
            reader_.append({bytes.data(), static_cast<size_t>(size)});
        }
        while (const auto frame = reader_.next().value()) {
            EXPECT_TRUE(answers.emplace_back().ParseFromArray(frame->data(),
                                                              static_cast<int>(frame->size())));
        }
    }

    // Of one request: its text so far, and its last answer.
    std::string text(uint64_t request_id) const {
        std::string text;
        for (const auto& answer : answers) {
            if (answer.request_id() == request_id) text += answer.chunk().text();
        }
        return text;
    }
    const client::Response* last(uint64_t request_id) const {
        for (auto it = answers.rbegin(); it != answers.rend(); ++it) {
            if (it->request_id() == request_id) return &*it;
        }
        return nullptr;
    }

    std::vector<client::Response> answers;
    bool is_closed = false;

  private:
    UniqueFd socket_;
    FrameReader reader_;
};

inline client::Request generate(uint64_t request_id, const std::string& text, uint32_t max_tokens) {
    client::Request request;
    request.set_request_id(request_id);
    request.mutable_generate()->set_text(text);
    request.mutable_generate()->set_max_tokens(max_tokens);
    request.mutable_generate()->mutable_sampling()->set_seed(3);
    return request;
}

}  // namespace afd::daemon
