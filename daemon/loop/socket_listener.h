// SPDX-License-Identifier: Apache-2.0
#pragma once

// SocketListener: a listening Unix stream socket, mode 0600, that hands over every connection of
// this user. Serves afdd's two sockets. Its directory must be private (proto/socket_path.h).

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "daemon/loop/acceptor.h"
#include "daemon/loop/event_loop.h"
#include "daemon/loop/unique_fd.h"
#include "proto/status.h"

namespace afd::daemon {

// Who is at the other end of a Unix socket, as the kernel says.
struct PeerCredentials {
    int pid = 0;
    uint32_t uid = 0;
};
Result<PeerCredentials> peer_credentials(int socket);

// Why this peer is not served, or nothing: only processes of the user `own_uid` are.
std::optional<std::string> refusal_of(const Result<PeerCredentials>& peer, uint32_t own_uid);

// Which file a path leads to.
struct SocketFile {
    uint64_t device = 0;
    uint64_t inode = 0;  // 0: there is none.

    static SocketFile at(const std::string& path);
    bool operator==(const SocketFile&) const = default;
};

class SocketListener {
  public:
    using OnConnection = std::function<void(UniqueFd socket, PeerCredentials peer)>;

    // Binds and listens; a socket file that nobody serves is replaced. Connections of other users
    // are closed at once, and the log says whose.
    // Errors: kAlreadyExists: somebody serves this path. kPermissionDenied.
    static Result<std::unique_ptr<SocketListener>> listen(EventLoop& loop,
                                                          const std::string& path,
                                                          OnConnection on_connection);
    // The same with the socket of another process that serves this path, and has the file until
    // take_file_back(). REQUIRES: it listens.
    static std::unique_ptr<SocketListener> take_over(EventLoop& loop,
                                                     const std::string& path,
                                                     UniqueFd listening,
                                                     OnConnection on_connection);
    // Removes the socket file, unless it is left to another process, or another one is there.
    ~SocketListener();

    SocketListener(const SocketListener&) = delete;
    SocketListener& operator=(const SocketListener&) = delete;

    const std::string& path() const { return path_; }
    Acceptor& acceptor() { return acceptor_; }
    // Another process serves this path from now on, or does no longer.
    void leave_file() { removes_file_ = false; }
    void take_file_back() { removes_file_ = true; }

  private:
    SocketListener(EventLoop& loop, UniqueFd fd, std::string path, OnConnection on_connection);

    const std::string path_;
    const SocketFile file_;  // As it was at the start.
    bool removes_file_ = true;
    Acceptor acceptor_;
};

}  // namespace afd::daemon
