// SPDX-License-Identifier: Apache-2.0
#include "clients/cancellation.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

namespace afd::client {

Result<Cancellation> Cancellation::create() {
    const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd < 0) {
        return afd::Error{Code::kResourceExhausted,
                          std::string("cannot make an eventfd: ") + std::strerror(errno)};
    }
    return Cancellation(fd);
}

Cancellation::Cancellation(Cancellation&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

Cancellation& Cancellation::operator=(Cancellation&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
}

Cancellation::~Cancellation() {
    if (fd_ >= 0) close(fd_);
}

void Cancellation::request() const {
    // Called from signal handlers, which must leave errno as it was. The write can fail only if
    // the counter is full, and then the descriptor is readable anyway.
    const int saved_errno = errno;
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(fd_, &one, sizeof(one));
    errno = saved_errno;
}

bool Cancellation::requested() const {
    pollfd item = {fd_, POLLIN, 0};
    return poll(&item, 1, 0) == 1;
}

}  // namespace afd::client
