// SPDX-License-Identifier: Apache-2.0
#include "daemon/config/own_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace afd::daemon {
namespace {

Result<std::string> read_own_descriptor(int fd, size_t bytes_max, const OwnFileRules& rules) {
    struct stat status {};
    if (::fstat(fd, &status) != 0) return rules.unreadable(errno);
    AFD_TRY(rules.check(status));
    std::string text(bytes_max, '\0');
    size_t num_read = 0;
    while (num_read < text.size()) {
        const ssize_t size = ::read(fd, text.data() + num_read, text.size() - num_read);
        if (size < 0 && errno == EINTR) continue;
        if (size < 0) return rules.unreadable(errno);
        if (size == 0) break;
        num_read += static_cast<size_t>(size);
    }
    // Cut while it was read: half of it may be half of a key.
    const bool is_whole = num_read == bytes_max || num_read >= static_cast<size_t>(status.st_size);
    if (S_ISREG(status.st_mode) && !is_whole) return rules.unreadable(EAGAIN);
    text.resize(num_read);
    return text;
}

}  // namespace

Result<std::string> read_own_file(const std::string& path,
                                  size_t bytes_max,
                                  const OwnFileRules& rules) {
    // Non-blocking: to open a pipe would else wait for somebody who writes it.
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) return rules.unreadable(errno);
    Result<std::string> text = read_own_descriptor(fd, bytes_max, rules);
    ::close(fd);
    return text;
}

}  // namespace afd::daemon
