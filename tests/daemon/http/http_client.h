// SPDX-License-Identifier: Apache-2.0
#pragma once

// HttpClient: the client's end of an HttpSession in the same process and on the same thread. It
// sends bytes, and takes apart what comes back with rules of its own: head, length or chunks.

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>

#include "daemon/http/http_session.h"

namespace afd::daemon {

class HttpClient {
  public:
    // `send_buffer`: of the session's socket, for a client that reads slowly; 0: the system's.
    HttpClient(EventLoop& loop,
               SessionOwner& owner,
               std::shared_ptr<HttpServices> services,
               int send_buffer = 0) {
        std::array<int, 2> fds{};
        EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds.data()),
                  0);
        socket_.reset(fds[0]);
        if (send_buffer > 0) {
            ::setsockopt(fds[1], SOL_SOCKET, SO_SNDBUF, &send_buffer, sizeof(send_buffer));
        }
        owner.adopt(std::make_unique<HttpSession>(
            loop, UniqueFd(fds[1]), ClientIdentity{"http", "test"}, owner, std::move(services)));
    }

    struct Answer {
        int status = 0;
        std::string head;
        std::string body;
    };

    void send(const std::string& bytes) {
        ASSERT_EQ(::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
                  static_cast<ssize_t>(bytes.size()));
    }
    void get(const std::string& path, const std::string& headers = "") {
        send("GET " + path + " HTTP/1.1\r\nHost: localhost\r\n" + headers + "\r\n");
    }
    static std::string post_bytes(const std::string& path,
                                  const std::string& body,
                                  const std::string& headers = "") {
        return "POST " + path +
               " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" + headers +
               "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
    }
    void post(const std::string& path, const std::string& body, const std::string& headers = "") {
        send(post_bytes(path, body, headers));
    }
    void shut_write() { ::shutdown(socket_.get(), SHUT_WR); }
    void close() { socket_.reset(); }

    // Takes what has arrived.
    void receive() {
        std::array<char, 65536> bytes;
        ssize_t size = 0;
        while ((size = ::recv(socket_.get(), bytes.data(), bytes.size(), 0)) > 0) {
            in.append(bytes.data(), static_cast<size_t>(size));
        }
        if (size == 0) is_closed = true;
    }

    // The next whole answer, or nothing so far. `to_head`: it has no body.
    std::optional<Answer> next(bool to_head = false) {
        receive();
        const size_t end = in.find("\r\n\r\n");
        if (end == std::string::npos) return std::nullopt;
        Answer answer;
        answer.head = in.substr(0, end + 2);
        answer.status = std::atoi(answer.head.c_str() + sizeof("HTTP/1.1"));
        const std::string rest = in.substr(end + 4);
        size_t used = 0;
        const std::string length = header(answer, "Content-Length");
        if (to_head || answer.status == 100) {
            used = 0;
        } else if (!length.empty()) {
            used = std::stoul(length);
            if (rest.size() < used) return std::nullopt;
            answer.body = rest.substr(0, used);
        } else if (header(answer, "Transfer-Encoding") == "chunked") {
            const auto chunks = unchunk(rest, used);
            if (!chunks) return std::nullopt;
            answer.body = *chunks;
        } else if (is_closed) {
            used = rest.size();
            answer.body = rest;
        } else {
            return std::nullopt;
        }
        in.erase(0, end + 4 + used);
        return answer;
    }

    // The value of a header; empty: it is not there.
    static std::string header(const Answer& answer, const std::string& name) {
        const size_t at = answer.head.find("\r\n" + name + ": ");
        if (at == std::string::npos) return "";
        const size_t begin = at + name.size() + 4;
        return answer.head.substr(begin, answer.head.find("\r\n", begin) - begin);
    }

    std::string in;  // Not yet taken.
    bool is_closed = false;

  private:
    static std::optional<std::string> unchunk(const std::string& bytes, size_t& used) {
        std::string body;
        for (size_t at = 0;;) {
            const size_t line = bytes.find("\r\n", at);
            if (line == std::string::npos) return std::nullopt;
            const size_t size = std::stoul(bytes.substr(at, line - at), nullptr, 16);
            if (bytes.size() < line + 2 + size + 2) return std::nullopt;
            body += bytes.substr(line + 2, size);
            EXPECT_EQ(bytes.substr(line + 2 + size, 2), "\r\n");
            at = line + 2 + size + 2;
            if (size == 0) {
                used = at;
                return body;
            }
        }
    }

    UniqueFd socket_;
};

}  // namespace afd::daemon
