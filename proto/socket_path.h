// SPDX-License-Identifier: Apache-2.0
#pragma once

// Where an instance of afdd lives in the file system: one rule for afdd, its workers and clients.
//
//   directory   $XDG_RUNTIME_DIR/afd, or /tmp/afd-<uid> when XDG_RUNTIME_DIR is unset or empty
//   clients     <directory>/<instance>.sock           (client.proto)
//   workers     <directory>/<instance>.control.sock   (control.proto), or .control2.sock: while an
//               afdd takes the place of another, both have workers
//   lock        <directory>/<instance>.lock           (held by the running afdd)
//
// The directory is private to its user (0700). In /tmp anybody can create that name first, so
// neither side trusts it unseen: afdd calls create_runtime_directory(), a client that uses a
// default path calls check_runtime_directory().

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "proto/status.h"

namespace afd {

inline constexpr std::string_view kDefaultInstance = "default";

// A longer path does not fit the kernel's sockaddr_un with its final zero byte.
inline constexpr size_t kSocketPathBytesMax = sizeof(sockaddr_un::sun_path) - 1;

// The instance name is part of file and segment names. Without '-' in it no instance's segment
// names ("/afd-NAME-...") begin with another's.
inline constexpr size_t kInstanceNameBytesMax = 32;

struct InstancePaths {
    std::string directory;
    std::string client_socket;
    std::string control_socket;
    std::string lock_file;
};

// Errors: kInvalidArgument unless `instance` is 1 to kInstanceNameBytesMax of a-z, 0-9 and '_'.
inline Result<> check_instance_name(std::string_view instance) {
    bool good = !instance.empty() && instance.size() <= kInstanceNameBytesMax;
    for (const char c : instance) {
        good = good && ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_');
    }
    if (good) return {};
    return Error{Code::kInvalidArgument,
                 "instance name '" + std::string(instance) + "': must be 1 to " +
                     std::to_string(kInstanceNameBytesMax) + " of a-z, 0-9 and '_'"};
}

// Errors: kInvalidArgument if `path` does not fit a socket address.
inline Result<> check_socket_path(std::string_view path) {
    if (path.empty()) return Error{Code::kInvalidArgument, "the socket path is empty"};
    if (path.size() <= kSocketPathBytesMax) return {};
    return Error{Code::kInvalidArgument,
                 "socket path '" + std::string(path) + "' has " + std::to_string(path.size()) +
                     " bytes; the kernel takes at most " + std::to_string(kSocketPathBytesMax) +
                     "; choose a shorter path: by --socket, or by a shorter directory "
                     "(XDG_RUNTIME_DIR) or instance name"};
}

// The address to bind or connect to. Errors: as check_socket_path().
inline Result<sockaddr_un> socket_address(std::string_view path) {
    AFD_TRY(check_socket_path(path));
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, path.size());
    return address;
}

inline std::string runtime_directory() {
    const char* xdg = std::getenv("XDG_RUNTIME_DIR");
    if (xdg != nullptr && xdg[0] != '\0') return std::string(xdg) + "/afd";
    return "/tmp/afd-" + std::to_string(getuid());
}

// Of an afdd that takes the place of one that has paths.control_socket.
inline std::string second_control_socket(const InstancePaths& paths) {
    constexpr std::string_view kEnd = ".sock";
    return paths.control_socket.substr(0, paths.control_socket.size() - kEnd.size()) + "2.sock";
}

// The paths of `instance`; touches no file.
// Errors: kInvalidArgument for a bad name or a path that is too long.
inline Result<InstancePaths> instance_paths(std::string_view instance) {
    AFD_TRY(check_instance_name(instance));
    InstancePaths paths;
    paths.directory = runtime_directory();
    const std::string base = paths.directory + "/" + std::string(instance);
    paths.client_socket = base + ".sock";
    paths.control_socket = base + ".control.sock";
    paths.lock_file = base + ".lock";
    // The longest of all: an instance that starts can also be upgraded.
    AFD_TRY(check_socket_path(second_control_socket(paths)));
    return paths;
}

// Errors: kNotFound if there is no such directory, kPermissionDenied if it is not a directory of
// this user's own that nobody else can enter.
inline Result<> check_runtime_directory(const std::string& directory) {
    struct stat status = {};
    if (lstat(directory.c_str(), &status) != 0) {
        return Error{errno == ENOENT ? Code::kNotFound : Code::kPermissionDenied,
                     "directory '" + directory + "': " + std::strerror(errno)};
    }
    if (!S_ISDIR(status.st_mode)) {
        return Error{Code::kPermissionDenied,
                     "'" + directory + "' is not a directory; remove it or set XDG_RUNTIME_DIR"};
    }
    if (status.st_uid != geteuid() || (status.st_mode & 077) != 0) {
        return Error{Code::kPermissionDenied,
                     "directory '" + directory +
                         "' must belong to this user with mode 0700, so that nobody else can "
                         "put a socket there; mend its owner and mode or set XDG_RUNTIME_DIR"};
    }
    return {};
}

// Makes the directory if it is missing (its parent must exist) and checks it.
// Errors: as check_runtime_directory().
inline Result<> create_runtime_directory(const std::string& directory) {
    if (mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) {
        const int error = errno;
        return Error{error == ENOENT ? Code::kNotFound : Code::kPermissionDenied,
                     "cannot create directory '" + directory + "': " + std::strerror(error) +
                         "; set XDG_RUNTIME_DIR to a directory of your own"};
    }
    return check_runtime_directory(directory);
}

}  // namespace afd
