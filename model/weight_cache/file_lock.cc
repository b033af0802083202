// SPDX-License-Identifier: Apache-2.0
#include "model/weight_cache/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "model/safetensors/file_error.h"

namespace afd::model {
namespace {

Error failure(const std::string& path, const char* what, int error) {
    return Error{file_error_code(error), path + ": " + what + ": " + std::strerror(error)};
}

}  // namespace

Result<std::optional<FileLock>> FileLock::try_acquire(const std::string& path) {
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return failure(path, "opening", errno);
    int done = 0;
    do {
        // The kernel lets go when the holder dies, so that no lock is ever left behind. The file
        // stays: removing it would let two processes hold the locks of two files of one name.
        done = ::flock(fd, LOCK_EX | LOCK_NB);
    } while (done != 0 && errno == EINTR);
    if (done == 0) return std::optional<FileLock>(FileLock(fd));
    const int error = errno;
    ::close(fd);
    if (error == EWOULDBLOCK) return std::optional<FileLock>();
    return failure(path, "locking", error);
}

FileLock::~FileLock() {
    if (fd_ >= 0) ::close(fd_);
}

}  // namespace afd::model
