// SPDX-License-Identifier: Apache-2.0
#include "model/safetensors/write_at.h"

#include <unistd.h>

#include <cerrno>

namespace afd::model {

int write_at(int fd, uint64_t offset, std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
        const ssize_t count = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return count == 0 ? ENOSPC : errno;
        offset += static_cast<uint64_t>(count);
        bytes = bytes.subspan(static_cast<size_t>(count));
    }
    return 0;
}

}  // namespace afd::model
