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

LogOutput::LogOutput(int fd) : way_(way_of(fd)), fd_(fd) {
    if (way_ != Way::kOpenedAgain) return;
    const std::string path = "/proc/self/fd/" + std::to_string(fd);
    const int again = ::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (again < 0) {
        way_ = Way::kAsked;
    } else {
        fd_ = again;
    }
}

LogOutput::~LogOutput() {
    if (way_ == Way::kOpenedAgain) ::close(fd_);
}

LogOutput::Way LogOutput::way_of(int fd) {
    struct stat status {};
    if (::fstat(fd, &status) != 0) return Way::kAsItIs;
    if (S_ISSOCK(status.st_mode)) return Way::kSocket;
    const bool may_wait = S_ISFIFO(status.st_mode) || S_ISCHR(status.st_mode);
    return may_wait ? Way::kOpenedAgain : Way::kAsItIs;
}

bool LogOutput::write(std::string_view line) {
    if (!rest_.empty()) {
        rest_.erase(0, write_some(rest_));
        if (!rest_.empty()) return false;
    }
    const size_t written = write_some(line);
    if (written == 0) return false;
    rest_ = line.substr(written);
    return true;
}

bool LogOutput::has_room() const {
    pollfd item{.fd = fd_, .events = POLLOUT, .revents = 0};
    return ::poll(&item, 1, 0) == 1 && (item.revents & POLLOUT) != 0;
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
            if (!has_room()) return 0;
            written = ::write(fd_, bytes.data(), std::min<size_t>(bytes.size(), PIPE_BUF));
        } else {
            written = ::write(fd_, bytes.data(), bytes.size());
        }
    } while (written < 0 && errno == EINTR);
    return written < 0 ? 0 : static_cast<size_t>(written);
}

}  // namespace afd::daemon
