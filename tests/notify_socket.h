// SPDX-License-Identifier: Apache-2.0
#pragma once

// NotifySocket: the service manager's end of NOTIFY_SOCKET, for tests: hears what a service says,
// and believes whom systemd would believe.

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "tests/temporary_directory.h"

namespace afd::test {

// NotifyAccess= of a unit: all processes of the service, or its main process alone.
enum class NotifyAccess { kAll, kMain };

// Of a unit file.
inline NotifyAccess notify_access_of(const std::string& unit) {
    std::ifstream file(unit);
    for (std::string line; std::getline(file, line);) {
        if (line == "NotifyAccess=all") return NotifyAccess::kAll;
    }
    return NotifyAccess::kMain;
}

class NotifySocket {
  public:
    explicit NotifySocket(NotifyAccess access = NotifyAccess::kAll)
        : access_(access), fd_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        std::strncpy(address.sun_path, path().c_str(), sizeof(address.sun_path) - 1);
        const int bound = ::bind(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
        AFD_ASSERT(bound == 0, "%s: %s", path().c_str(), std::strerror(errno));
        // Who speaks is the kernel's word.
        const int on = 1;
        const int set = ::setsockopt(fd_, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on));
        AFD_ASSERT(set == 0, "SO_PASSCRED: %s", std::strerror(errno));
    }
    ~NotifySocket() { ::close(fd_); }
    NotifySocket(const NotifySocket&) = delete;
    NotifySocket& operator=(const NotifySocket&) = delete;

    std::string path() const { return directory_.path("notify"); }

    // The next message; empty if there is none within the time, or its sender is not believed.
    std::string next(std::chrono::milliseconds patience) {
        pollfd item = {fd_, POLLIN, 0};
        if (::poll(&item, 1, static_cast<int>(patience.count())) <= 0) return "";
        pid_t sender = 0;
        const std::string message = receive(sender);
        if (main_pid_ == 0) main_pid_ = sender;
        if (sender != main_pid_) {
            ++num_beside_main_;
            if (access_ == NotifyAccess::kMain) return "";
        }
        const std::string key = "MAINPID=";
        if (const size_t at = message.find(key); at != std::string::npos) {
            main_pid_ = std::atoi(message.c_str() + at + key.size());
        }
        return message;
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

    // The first process that spoke, or whom it, or its successor, has said to be the main process.
    pid_t main_pid() const { return main_pid_; }
    // Messages of others.
    int num_beside_main() const { return num_beside_main_; }

  private:
    std::string receive(pid_t& sender) const {
        char buffer[4096];
        alignas(cmsghdr) char control[CMSG_SPACE(sizeof(ucred))];
        iovec bytes = {buffer, sizeof(buffer)};
        msghdr header{};
        header.msg_iov = &bytes;
        header.msg_iovlen = 1;
        header.msg_control = control;
        header.msg_controllen = sizeof(control);
        const ssize_t size = ::recvmsg(fd_, &header, 0);
        const cmsghdr* const found = size > 0 ? CMSG_FIRSTHDR(&header) : nullptr;
        if (found == nullptr || found->cmsg_type != SCM_CREDENTIALS) return "";
        ucred credentials{};
        std::memcpy(&credentials, CMSG_DATA(found), sizeof(credentials));
        sender = credentials.pid;
        return std::string(buffer, static_cast<size_t>(size));
    }

    const TemporaryDirectory directory_;
    const NotifyAccess access_;
    const int fd_;
    pid_t main_pid_ = 0;
    int num_beside_main_ = 0;
};

}  // namespace afd::test
