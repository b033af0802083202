// SPDX-License-Identifier: Apache-2.0
#include "daemon/client_socket/socket_front_end.h"

#include <utility>

#include "daemon/client_socket/client_connection.h"

namespace afd::daemon {

Result<std::unique_ptr<FrontEnd>> SocketFrontEnd::open(EventLoop& loop,
                                                       const std::string& path,
                                                       SessionHost& host,
                                                       std::shared_ptr<InputBudget> budget) {
    AFD_ASSIGN(
        std::unique_ptr<SocketListener> listener,
        SocketListener::listen(
            loop,
            path,
            [&loop, &host, budget = std::move(budget)](UniqueFd socket, PeerCredentials peer) {
                // Who connects is what the kernel says, not what the client says.
                ClientIdentity identity{"uid " + std::to_string(peer.uid),
                                        "client pid " + std::to_string(peer.pid)};
                host.adopt(std::make_unique<ClientConnection>(
                    loop, std::move(socket), std::move(identity), host, budget));
            }));
    return std::unique_ptr<FrontEnd>(new SocketFrontEnd(std::move(listener)));
}

}  // namespace afd::daemon
