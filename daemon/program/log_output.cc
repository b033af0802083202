// SPDX-License-Identifier: Apache-2.0
#include "daemon/program/log_output.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>

namespace afd::daemon {
namespace {

constexpr int kToWrite = O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;

// The terminal that this process is under, which it may open whoever owns it. -1: it has none, or
// another one.
int open_own_terminal(dev_t wanted) {
    const int terminal = ::open("/dev/tty", kToWrite);
    if (terminal < 0) return -1;
    unsigned int device = 0;
    if (::ioctl(terminal, TIOCGDEV, &device) == 0 && device == wanted) return terminal;
    ::close(terminal);
    return -1;
}

}  // namespace

LogOutput::~LogOutput() {
    close_own();
}

void LogOutput::close_own() {
    if (way_ == Way::kOpenedAgain) ::close(fd_);
}

void LogOutput::look() {
    struct stat status {};
    if (::fstat(given_, &status) != 0) return;
    const std::pair file(status.st_dev, status.st_ino);
    if (fd_ >= 0 && file == file_) return;
    close_own();
    file_ = file;
    fd_ = given_;
    rest_.clear();
    is_hung_ = false;
    way_ = S_ISSOCK(status.st_mode) ? Way::kSocket : Way::kAsItIs;
    if (!S_ISFIFO(status.st_mode) && !S_ISCHR(status.st_mode)) return;
    int again = ::open(("/proc/self/fd/" + std::to_string(given_)).c_str(), kToWrite);
    if (again < 0 && S_ISCHR(status.st_mode)) again = open_own_terminal(status.st_rdev);
    way_ = again < 0 ? Way::kAsked : Way::kOpenedAgain;
    asked_bytes_ = S_ISCHR(status.st_mode) ? 1 : PIPE_BUF;
    if (again >= 0) fd_ = again;
}

bool LogOutput::write(std::string_view line) {
    look();
    if (fd_ < 0) return false;
    rest_.erase(0, write_on(rest_));
    if (!rest_.empty()) return false;
    const size_t written = write_on(line);
    if (written == 0) return false;
    rest_ = line.substr(written);
    if (rest_.empty()) is_hung_ = false;
    return true;
}

size_t LogOutput::write_on(std::string_view bytes) {
    size_t done = 0;
    bool has_waited = false;
    while (done < bytes.size()) {
        const size_t written = write_some(bytes.substr(done));
        done += written;
        // Room that nothing fits into: a full disk, or nobody reads any more.
        if (written == 0 && (has_waited || !wait_for_room())) break;
        has_waited = written == 0;
    }
    return done;
}

bool LogOutput::wait_for_room() {
    const auto now = Clock::now();
    if (now - period_began_ >= kPeriod) {
        period_began_ = now;
        waited_ = {};
    }
    if (is_hung_ || waited_ >= kPatience) return false;
    is_hung_ = !has_room(kPatience - waited_);
    waited_ += Clock::now() - now;
    return !is_hung_;
}

bool LogOutput::has_room(Clock::duration wait) const {
    const auto end = Clock::now() + wait;
    pollfd item{.fd = fd_, .events = POLLOUT, .revents = 0};
    int found = -1;
    do {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
        found = ::poll(&item, 1, static_cast<int>(std::max<int64_t>(left.count(), 0)));
    } while (found < 0 && errno == EINTR);
    return found == 1 && item.revents == POLLOUT;
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
            if (!has_room(Clock::duration::zero())) return 0;
            written = ::write(fd_, bytes.data(), std::min(bytes.size(), asked_bytes_));
        } else {
            written = ::write(fd_, bytes.data(), bytes.size());
        }
    } while (written < 0 && errno == EINTR);
    return written < 0 ? 0 : static_cast<size_t>(written);
}

}  // namespace afd::daemon
