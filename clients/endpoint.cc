// SPDX-License-Identifier: Apache-2.0
#include "clients/endpoint.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <vector>

#include "proto/socket_path.h"

namespace afd::client {
namespace {

// Instances with a client socket in `directory`, except `instance`; empty if it cannot be read.
std::vector<std::string> other_instances(const std::string& directory,
                                         const std::string& instance) {
    std::vector<std::string> names;
    std::error_code error;
    std::filesystem::directory_iterator it(directory, error);
    for (; !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
        const std::filesystem::path file = it->path();
        const std::string name = file.stem().string();
        if (file.extension() != ".sock" || name == instance) continue;
        if (check_instance_name(name).ok()) names.push_back(name);  // Not "<name>.control".
    }
    return names;
}

// Whether process `pid` has `file` open, as the afdd of an instance has its lock for as long as it
// runs. A lock of ours, tried for a moment, could keep an afdd that starts just then from starting.
bool has_open(int pid, const struct stat& file) {
    std::error_code error;
    std::filesystem::directory_iterator it("/proc/" + std::to_string(pid) + "/fd", error);
    for (; !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
        struct stat open = {};
        if (::stat(it->path().c_str(), &open) != 0) continue;
        if (open.st_dev == file.st_dev && open.st_ino == file.st_ino) return true;
    }
    return false;
}

// The afdd that runs under this name, whether or not it has a client socket.
std::optional<int> running_afdd(const std::string& instance) {
    const Result<InstancePaths> paths = instance_paths(instance);
    struct stat lock = {};
    if (!paths.ok() || ::stat(paths.value().lock_file.c_str(), &lock) != 0) return std::nullopt;
    int pid = 0;
    std::ifstream(paths.value().lock_file) >> pid;
    if (pid <= 0 || !has_open(pid, lock)) return std::nullopt;
    return pid;
}

std::string why_no_socket(const Endpoint& endpoint, int pid) {
    return "afdd (pid " + std::to_string(pid) + ") holds the name '" + endpoint.instance +
           "' without such a socket: it is starting, or serves elsewhere (give its --socket), "
           "or it has joined a leader and takes no clients, or its socket file was removed; "
           "kill -TERM " +
           std::to_string(pid) + " ends it";
}

std::string how_to_start(const Endpoint& endpoint) {
    if (endpoint.instance.empty()) return "start afdd, or check this path";
    std::string text = "start it with: afdd";
    if (endpoint.instance == "demo") {
        text += " --demo";
    } else if (endpoint.instance == kDefaultInstance) {
        text += " --model DIRECTORY";
    } else {
        text += " --instance " + endpoint.instance + " --model DIRECTORY";
    }
    const auto others = other_instances(runtime_directory(), endpoint.instance);
    if (others.empty()) return text;
    text += "; other instances here (--instance):";
    for (const std::string& name : others) text += " " + name;
    return text;
}

std::string from(const std::string& origin) {
    return origin.empty() ? "" : " (from " + origin + ")";
}

}  // namespace

Result<Endpoint> resolve_endpoint(const std::string& socket_path,
                                  const std::string& instance,
                                  const std::string& origin) {
    if (!socket_path.empty()) {
        const Result<> fits = check_socket_path(socket_path);
        if (!fits.ok()) return afd::Error{fits.error().code, fits.error().message + from(origin)};
        return Endpoint{socket_path, "", origin};
    }
    AFD_ASSIGN(const InstancePaths paths, instance_paths(instance));
    const Result<> directory = check_runtime_directory(paths.directory);
    // A missing directory is left to the connection, whose message also says how to start afdd.
    if (!directory.ok() && directory.error().code != Code::kNotFound) return directory.error();
    return Endpoint{paths.client_socket, instance, ""};
}

afd::Error explain_connect_failure(const Endpoint& endpoint, int error_number) {
    std::string message = "cannot reach afdd";
    if (!endpoint.instance.empty()) message += " (instance '" + endpoint.instance + "')";
    message += " at " + endpoint.socket_path + from(endpoint.origin) + ": ";
    switch (error_number) {
        case ENOENT:
            if (const auto pid = running_afdd(endpoint.instance)) {
                return {Code::kUnavailable, message + why_no_socket(endpoint, *pid)};
            }
            return {Code::kNotFound,
                    message + "there is no such socket; " + how_to_start(endpoint)};
        case ECONNREFUSED:
            return {Code::kUnavailable,
                    message +
                        "nobody listens on this socket, its afdd is gone (a new one replaces "
                        "the file); " +
                        how_to_start(endpoint)};
        case EACCES:
        case EPERM:
            return {Code::kPermissionDenied,
                    message +
                        "permission denied; the socket belongs to the user who runs afdd, "
                        "use the client as that user"};
        case EAGAIN:
            return {Code::kDeadlineExceeded,
                    message +
                        "it has not accepted the connection in time; afdd hangs or is "
                        "stopped, see its log"};
        case ENOTSOCK:
        case EPROTOTYPE:
            return {Code::kInvalidArgument, message + "this is no stream socket of afdd"};
        default:
            return {Code::kUnavailable, message + std::strerror(error_number)};
    }
}

}  // namespace afd::client
