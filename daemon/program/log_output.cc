// SPDX-License-Identifier: Apache-2.0
#include "daemon/program/log_output.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>

namespace afd::daemon {

LogOutput::~LogOutput() {
    close_own();
}

void LogOutput::close_own() {
    if (way_ == Way::kOpenedAgain) ::close(fd_);
}

void LogOutput::look() {
    struct stat status {};
    ::fstat(given_, &status);
    const std::pair file(status.st_dev, status.st_ino);
    if (fd_ >= 0 && file == file_) return;
    close_own();
    file_ = file;
    fd_ = given_;
    rest_.clear();
    way_ = S_ISSOCK(status.st_mode) ? Way::kSocket : Way::kAsItIs;
    if (!S_ISFIFO(status.st_mode) && !S_ISCHR(status.st_mode)) return;
    const std::string path = "/proc/self/fd/" + std::to_string(given_);
    const int again = ::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    way_ = again < 0 ? Way::kAsked : Way::kOpenedAgain;
    if (again >= 0) fd_ = again;
}

bool LogOutput::write(std::string_view line) {
    if (write_now(line)) {
        is_patient_ = true;
        return true;
    }
    if (!is_patient_) return false;
    is_patient_ = false;
    return has_room(kPatience) && write_now(line);
}

bool LogOutput::write_now(std::string_view line) {
    look();
    if (!rest_.empty()) {
        rest_.erase(0, write_some(rest_));
        if (!rest_.empty()) return false;
    }
    const size_t written = write_some(line);
    if (written == 0) return false;
    rest_ = line.substr(written);
    return true;
}

bool LogOutput::has_room(std::chrono::milliseconds wait) const {
    pollfd item{.fd = fd_, .events = POLLOUT, .revents = 0};
    return ::poll(&item, 1, static_cast<int>(wait.count())) == 1 && (item.revents & POLLOUT) != 0;
}

size_t LogOutput::write_some(std::string_view bytes) const {
    ssize_t written = 0;
    do {
        if (way_ == Way::kSocket) {
            // The system calls that workers may make have sendmsg alone.
            iovec part{const_cast<char*>(bytes.data()), bytes.size()};
            msghdr message{};
            message.msg_iov = &part;
            message.msg_iovlen = 1;
            written = ::sendmsg(fd_, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
        } else if (way_ == Way::kAsked) {
            if (!has_room(std::chrono::milliseconds(0))) return 0;
            written = ::write(fd_, bytes.data(), std::min<size_t>(bytes.size(), PIPE_BUF));
        } else {
            written = ::write(fd_, bytes.data(), bytes.size());
        }
    } while (written < 0 && errno == EINTR);
    return written < 0 ? 0 : static_cast<size_t>(written);
}

}  // namespace afd::daemon
