// SPDX-License-Identifier: Apache-2.0
#include "daemon/client_socket/socket_front_end.h"

#include <utility>

#include "daemon/client_socket/client_connection.h"

namespace afd::daemon {

SocketFrontEnd::SocketFrontEnd(EventLoop& loop,
                               SessionOwner& owner,
                               std::shared_ptr<InputBudget> budget)
    : loop_(loop), owner_(owner), budget_(std::move(budget)) {}

Result<std::unique_ptr<FrontEnd>> SocketFrontEnd::open(EventLoop& loop,
                                                       const std::string& path,
                                                       SessionOwner& owner,
                                                       std::shared_ptr<InputBudget> budget,
                                                       UniqueFd listening) {
    std::unique_ptr<SocketFrontEnd> front_end(new SocketFrontEnd(loop, owner, std::move(budget)));
    const auto on_connection = [self = front_end.get()](UniqueFd socket, PeerCredentials peer) {
        self->owner_.adopt(self->session_of(std::move(socket), peer));
    };
    if (listening.valid()) {
        front_end->listener_ =
            SocketListener::take_over(loop, path, std::move(listening), on_connection);
    } else {
        AFD_ASSIGN(front_end->listener_, SocketListener::listen(loop, path, on_connection));
    }
    return std::unique_ptr<FrontEnd>(std::move(front_end));
}

std::unique_ptr<ClientConnection> SocketFrontEnd::session_of(UniqueFd socket,
                                                             const PeerCredentials& peer) {
    // Who connects is what the kernel says, not what the client says.
    ClientIdentity identity{"uid " + std::to_string(peer.uid),
                            "client pid " + std::to_string(peer.pid)};
    return std::make_unique<ClientConnection>(
        loop_, std::move(socket), std::move(identity), owner_, budget_);
}

void SocketFrontEnd::go_on() {
    listener_->take_file_back();
    listener_->acceptor().go_on();
}

void SocketFrontEnd::adopt(HandedConnection handed) {
    const Result<PeerCredentials> peer = peer_credentials(handed.socket.get());
    if (!peer.ok()) return;
    std::unique_ptr<ClientConnection> session = session_of(std::move(handed.socket), peer.value());
    session->begin_with(handed.unread, handed.unsent);
    owner_.adopt_handed(std::move(session));
}

}  // namespace afd::daemon
