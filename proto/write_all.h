// SPDX-License-Identifier: Apache-2.0
#pragma once

// write_all(): what goes into a file or pipe in one piece is taken in as many as the kernel likes.

#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <span>

namespace afd {

// Writes `bytes` to `fd`, and waits where there is no room yet. False: not all of them; errno says
// why.
inline bool write_all(int fd, std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
        const ssize_t size = ::write(fd, bytes.data(), bytes.size());
        if (size < 0 && errno == EINTR) continue;
        // It names no error then, and to go on would never end.
        if (size == 0) errno = ENOSPC;
        if (size <= 0) return false;
        bytes = bytes.subspan(static_cast<size_t>(size));
    }
    return true;
}

}  // namespace afd
