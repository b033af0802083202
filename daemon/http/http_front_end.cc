// SPDX-License-Identifier: Apache-2.0
#include "daemon/http/http_front_end.h"

#include <utility>

#include "daemon/http/http_session.h"
#include "daemon/http/tcp_socket.h"

namespace afd::daemon {

Result<std::unique_ptr<FrontEnd>> HttpFrontEnd::open(EventLoop& loop,
                                                     ListenAddress address,
                                                     SessionHost& host,
                                                     std::shared_ptr<HttpServices> services) {
    services->is_loopback = address.is_loopback();
    AFD_ASSIGN(UniqueFd listening, listen_tcp(address));
    return std::unique_ptr<FrontEnd>(
        new HttpFrontEnd(loop, std::move(listening), address, host, std::move(services)));
}

HttpFrontEnd::HttpFrontEnd(EventLoop& loop,
                           UniqueFd listening,
                           const ListenAddress& address,
                           SessionHost& host,
                           std::shared_ptr<HttpServices> services)
    : address_(address),
      acceptor_(loop,
                std::move(listening),
                address.text(),
                [&loop, &host, services = std::move(services)](UniqueFd socket) {
                    ClientIdentity identity{"http", "http client " + peer_name(socket.get())};
                    host.adopt(std::make_unique<HttpSession>(
                        loop, std::move(socket), std::move(identity), host, services));
                }) {}

}  // namespace afd::daemon
