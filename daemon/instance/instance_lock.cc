// SPDX-License-Identifier: Apache-2.0
#include "daemon/instance/instance_lock.h"

#include <fcntl.h>
#include <sys/file.h>

#include <array>
#include <cerrno>
#include <cstring>

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
    AFD_TRY(lock.sign());
    return lock;
}

Result<> InstanceLock::sign() const {
    const std::string pid = std::to_string(::getpid()) + "\n";
    if (::ftruncate(fd_.get(), 0) != 0 ||
        ::pwrite(fd_.get(), pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
        return Error{Code::kPermissionDenied,
                     "cannot write the lock file '" + path_ + "': " + std::strerror(errno)};
    }
    return {};
}

}  // namespace afd::daemon
