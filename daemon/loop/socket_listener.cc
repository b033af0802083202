// SPDX-License-Identifier: Apache-2.0
#include "daemon/loop/socket_listener.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>

#include "daemon/program/logging.h"
#include "proto/socket_path.h"

namespace afd::daemon {

namespace {

const sockaddr* generic(const sockaddr_un& address) {
    return reinterpret_cast<const sockaddr*>(&address);
}

// Why the socket at this address is not to be replaced; nothing: nobody has it any more.
std::optional<std::string> use_of(const sockaddr_un& address) {
    const UniqueFd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!probe.valid()) return std::string("cannot be looked at: ") + std::strerror(errno);
    const int connected = ::connect(probe.get(), generic(address), sizeof(address));
    if (connected == 0 || errno == EAGAIN) return "is served by another process";
    if (errno == ECONNREFUSED) return std::nullopt;
    // One that is no stream of bytes, for example, may be of value to whoever has it.
    return std::string("is in the way and may be in use: ") + std::strerror(errno);
}

Error failed(const std::string& what, const std::string& path) {
    return Error{Code::kPermissionDenied,
                 "cannot " + what + " socket '" + path + "': " + std::strerror(errno)};
}

}  // namespace

Result<PeerCredentials> peer_credentials(int socket) {
    ucred peer{};
    socklen_t size = sizeof(peer);
    if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
        return Error{Code::kPermissionDenied,
                     std::string("cannot ask who is connected: ") + std::strerror(errno)};
    }
    return PeerCredentials{peer.pid, peer.uid};
}

std::optional<std::string> refusal_of(const Result<PeerCredentials>& peer, uint32_t own_uid) {
    if (!peer.ok()) return peer.error().message;
    if (peer.value().uid == own_uid) return std::nullopt;
    return fmt::format(
        "pid {} is of uid {}; only uid {} is served", peer.value().pid, peer.value().uid, own_uid);
}

SocketFile SocketFile::at(const std::string& path) {
    struct stat status {};
    if (::lstat(path.c_str(), &status) != 0) return {};
    return {status.st_dev, status.st_ino};
}

Result<std::unique_ptr<SocketListener>> SocketListener::listen(EventLoop& loop,
                                                               const std::string& path,
                                                               OnConnection on_connection) {
    AFD_ASSIGN(const sockaddr_un address, socket_address(path));
    struct stat status {};
    if (::lstat(path.c_str(), &status) == 0) {
        // A path that a user mistyped may be a file of value.
        if (!S_ISSOCK(status.st_mode)) {
            return Error{Code::kAlreadyExists,
                         "'" + path + "' exists and is not a socket; remove it or choose another"};
        }
        // Unlinking the socket of another afdd would cut it off from its clients without a word.
        if (const auto use = use_of(address)) {
            return Error{Code::kAlreadyExists,
                         "socket '" + path + "' " + *use + "; choose another"};
        }
        if (::unlink(path.c_str()) != 0) return failed("replace the stale", path);
    }
    UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd.valid() || ::bind(fd.get(), generic(address), sizeof(address)) != 0) {
        return failed("bind", path);
    }
    // Nobody can connect between bind and listen, so the mode is right before it matters.
    if (::chmod(path.c_str(), 0600) != 0 || ::listen(fd.get(), SOMAXCONN) != 0) {
        return failed("listen on", path);
    }
    return std::unique_ptr<SocketListener>(
        new SocketListener(loop, std::move(fd), path, std::move(on_connection)));
}

std::unique_ptr<SocketListener> SocketListener::take_over(EventLoop& loop,
                                                          const std::string& path,
                                                          UniqueFd listening,
                                                          OnConnection on_connection) {
    std::unique_ptr<SocketListener> listener(
        new SocketListener(loop, std::move(listening), path, std::move(on_connection)));
    listener->leave_file();
    return listener;
}

SocketListener::SocketListener(EventLoop& loop,
                               UniqueFd fd,
                               std::string path,
                               OnConnection on_connection)
    : path_(std::move(path)),
      file_(SocketFile::at(path_)),
      acceptor_(loop,
                std::move(fd),
                path_,
                [this, on_connection = std::move(on_connection)](UniqueFd socket) {
                    const Result<PeerCredentials> peer = peer_credentials(socket.get());
                    // Who gets past the mode of the socket, as root does, is not served either.
                    if (const auto why = refusal_of(peer, ::geteuid())) {
                        log::warn("refused a connection on '{}': {}", path_, *why);
                        return;
                    }
                    on_connection(std::move(socket), peer.value());
                }) {}

SocketListener::~SocketListener() {
    // Whoever removed it may have put its own there.
    if (removes_file_ && file_.inode != 0 && SocketFile::at(path_) == file_) {
        ::unlink(path_.c_str());
    }
}

}  // namespace afd::daemon
