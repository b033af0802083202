// SPDX-License-Identifier: Apache-2.0
#include "daemon/options/config_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "daemon/config/own_file.h"
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
        return permission_denied(
            "configuration file '{0}': its mode is {1:04o}, so others can write it; take that from "
            "them: chmod go-w '{0}'",
            with(file, status.st_mode & 07777U));
    }
    const bool is_trusted = status.st_uid == ::geteuid() || status.st_uid == 0;
    if (place == ConfigFilePlace::kFound && !is_trusted) {
        return permission_denied(
            "configuration file '{0}': it belongs to uid {1}, and not to you or root; to use it "
            "name it: --config '{0}'",
            with(file, status.st_uid));
    }
    return {};
}

Error unreadable(const std::string& file, int error) {
    if (error == ENXIO) {
        return invalid_argument(
            "configuration file '{}': it is a socket or a device; it must be a regular file",
            with(file));
    }
    return not_found("configuration file '{}': {}", with(file, std::strerror(error)));
}

}  // namespace

Result<std::string> read_config_file(const std::string& file, ConfigFilePlace place) {
    const OwnFileRules rules = {
        .check = [&](const auto& status) { return check_config_file(file, status, place); },
        .unreadable = [&](int error) { return unreadable(file, error); }};
    AFD_ASSIGN(std::string text, read_own_file(file, kConfigBytesMax + 1, rules));
    if (text.size() > kConfigBytesMax) {
        return invalid_argument("configuration file '{}': longer than {} bytes",
                                with(file, kConfigBytesMax));
    }
    return text;
}

}  // namespace afd::daemon
