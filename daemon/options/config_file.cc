// SPDX-License-Identifier: Apache-2.0
#include "daemon/options/config_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "proto/failure.h"

namespace afd::daemon {
namespace {

// Every option with its comment is some 10 KB.
constexpr size_t kConfigBytesMax = size_t{1} << 20;

const char* kind_of(mode_t mode) {
    if (S_ISDIR(mode)) return "a directory";
    if (S_ISFIFO(mode)) return "a pipe";
    if (S_ISSOCK(mode)) return "a socket";
    return "a device";
}

Result<> check_config_file(const std::string& file,
                           const struct stat& status,
                           ConfigFilePlace place) {
    if (!S_ISREG(status.st_mode)) {
        return invalid_argument("configuration file '{}': it is {}; it must be a regular file",
                                with(file, kind_of(status.st_mode)));
    }
    if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
        return Error{Code::kPermissionDenied,
                     fmt::format("configuration file '{0}': its mode is {1:04o}, so others can "
                                 "write it; take that from them: chmod go-w '{0}'",
                                 file,
                                 status.st_mode & 07777U)};
    }
    const bool is_trusted = status.st_uid == ::geteuid() || status.st_uid == 0;
    if (place == ConfigFilePlace::kFound && !is_trusted) {
        return Error{Code::kPermissionDenied,
                     fmt::format("configuration file '{0}': it belongs to uid {1}, and not to you "
                                 "or root; to use it name it: --config '{0}'",
                                 file,
                                 status.st_uid)};
    }
    return {};
}

Error unreadable(const std::string& file) {
    return not_found("configuration file '{}': {}", with(file, std::strerror(errno)));
}

Result<std::string> read_opened(int fd, const std::string& file, ConfigFilePlace place) {
    struct stat status {};
    if (::fstat(fd, &status) != 0) return unreadable(file);
    AFD_TRY(check_config_file(file, status, place));
    std::string text;
    std::array<char, 4096> bytes;
    while (true) {
        const ssize_t size = ::read(fd, bytes.data(), bytes.size());
        if (size < 0 && errno == EINTR) continue;
        if (size < 0) return unreadable(file);
        if (size == 0) return text;
        text.append(bytes.data(), static_cast<size_t>(size));
        if (text.size() > kConfigBytesMax) {
            return invalid_argument("configuration file '{}': longer than {} bytes",
                                    with(file, kConfigBytesMax));
        }
    }
}

}  // namespace

Result<std::string> read_config_file(const std::string& file, ConfigFilePlace place) {
    // Non-blocking: to open a pipe would else wait for somebody who writes it.
    const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 && errno == ENXIO) {
        return invalid_argument(
            "configuration file '{}': it is a socket or a device; it must be a regular file",
            with(file));
    }
    if (fd < 0) return unreadable(file);
    Result<std::string> text = read_opened(fd, file, place);
    ::close(fd);
    return text;
}

}  // namespace afd::daemon
