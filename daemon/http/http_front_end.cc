// SPDX-License-Identifier: Apache-2.0
#include "daemon/http/http_front_end.h"

#include <utility>

#include "daemon/http/http_session.h"
#include "daemon/tcp/tcp_socket.h"

namespace afd::daemon {

Result<std::unique_ptr<FrontEnd>> HttpFrontEnd::open(EventLoop& loop,
                                                     ListenAddress address,
                                                     SessionOwner& owner,
                                                     std::shared_ptr<HttpServices> services,
                                                     UniqueFd listening) {
    services->is_loopback = address.is_loopback();
    if (!listening.valid()) {
        AFD_ASSIGN(listening, listen_tcp(address, "http"));
    }
    return std::unique_ptr<FrontEnd>(
        new HttpFrontEnd(loop, std::move(listening), address, owner, std::move(services)));
}

HttpFrontEnd::HttpFrontEnd(EventLoop& loop,
                           UniqueFd listening,
                           const ListenAddress& address,
                           SessionOwner& owner,
                           std::shared_ptr<HttpServices> services)
    : loop_(loop),
      owner_(owner),
      services_(std::move(services)),
      address_(address),
      acceptor_(loop, std::move(listening), address.text(), [this](UniqueFd socket) {
          owner_.adopt(session_of(std::move(socket)));
      }) {}

std::unique_ptr<HttpSession> HttpFrontEnd::session_of(UniqueFd socket) {
    ClientIdentity identity{"http", "http client " + peer_name(socket.get())};
    return std::make_unique<HttpSession>(
        loop_, std::move(socket), std::move(identity), owner_, services_);
}

void HttpFrontEnd::adopt(HandedConnection connection) {
    std::unique_ptr<HttpSession> session = session_of(std::move(connection.socket));
    session->begin_with(connection.unread, connection.unsent);
    owner_.adopt_handed(std::move(session));
}

}  // namespace afd::daemon
