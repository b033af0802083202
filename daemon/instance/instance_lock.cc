// SPDX-License-Identifier: Apache-2.0
#include "daemon/instance/instance_lock.h"

#include <fcntl.h>
#include <sys/file.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "daemon/program/logging.h"
#include "proto/failure.h"

namespace afd::daemon {

namespace {

std::string read_pid(int fd) {
    std::array<char, 16> text{};
    const ssize_t size = ::pread(fd, text.data(), text.size(), 0);
    std::string pid;
    for (ssize_t i = 0; i < size; ++i) {
        const char c = text[static_cast<size_t>(i)];
        if (c < '0' || c > '9') break;
        pid += c;
    }
    return pid.empty() ? "unknown" : pid;
}

}  // namespace

Result<InstanceLock> InstanceLock::acquire(const std::string& path, const std::string& instance) {
    // No link is followed: the runtime directory may lie below /tmp. O_CLOEXEC, because a worker
    // that inherited the lock would keep it after afdd is gone.
    UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!fd.valid()) {
        return Error{Code::kPermissionDenied,
                     "cannot open the lock file '" + path + "': " + std::strerror(errno)};
    }
    // A lock of the kernel's and not the file's existence: it ends with the process, however that
    // ends. The pid in it is for the message only. The file stays: removing it would race with the
    // next afdd.
    if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
        return Error{Code::kAlreadyExists,
                     "instance '" + instance + "' is already served by afdd with pid " +
                         read_pid(fd.get()) + "; stop it (kill -TERM), or start this one under " +
                         "another name with --instance"};
    }
    InstanceLock lock(std::move(fd), path);
    if (const Result<> done = lock.sign(); !done.ok()) log::warn("{}", done.error().message);
    return lock;
}

Result<> InstanceLock::sign() const {
    const std::string pid = std::to_string(::getpid()) + "\n";
    const auto size = static_cast<ssize_t>(pid.size());
    // Over what is there: on a full disk, a file that was emptied may not be filled again.
    if (::pwrite(fd_.get(), pid.data(), pid.size(), 0) == size &&
        ::ftruncate(fd_.get(), size) == 0) {
        return {};
    }
    const Error error = unavailable("cannot write the pid of this afdd to the lock file '{}': {}",
                                    with(path_, std::strerror(errno)));
    // The pid of before may be anybody's by now.
    [[maybe_unused]] const int emptied = ::ftruncate(fd_.get(), 0);
    return error;
}

}  // namespace afd::daemon
