// SPDX-License-Identifier: Apache-2.0
#pragma once

// NotifySocket: the service manager's end of NOTIFY_SOCKET, for tests: hears what a service says.

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <string>

#include "tests/temporary_directory.h"

namespace afd::test {

class NotifySocket {
  public:
    NotifySocket() : fd_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        std::strncpy(address.sun_path, path().c_str(), sizeof(address.sun_path) - 1);
        const int bound = ::bind(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
        AFD_ASSERT(bound == 0, "%s: %s", path().c_str(), std::strerror(errno));
    }
    ~NotifySocket() { ::close(fd_); }
    NotifySocket(const NotifySocket&) = delete;
    NotifySocket& operator=(const NotifySocket&) = delete;

    std::string path() const { return directory_.path("notify"); }

    // The next message; empty if there is none within the time.
    std::string next(std::chrono::milliseconds patience) {
        pollfd item = {fd_, POLLIN, 0};
        if (::poll(&item, 1, static_cast<int>(patience.count())) <= 0) return "";
        char buffer[4096];
        const ssize_t size = ::recv(fd_, buffer, sizeof(buffer), 0);
        return size > 0 ? std::string(buffer, static_cast<size_t>(size)) : "";
    }

    // The next message that has `text`; empty if none comes within a minute.
    std::string wait_for(const std::string& text) {
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
        while (std::chrono::steady_clock::now() < deadline) {
            const std::string message = next(std::chrono::seconds(1));
            if (message.find(text) != std::string::npos) return message;
        }
        return "";
    }

  private:
    const TemporaryDirectory directory_;
    const int fd_;
};

}  // namespace afd::test
