// SPDX-License-Identifier: Apache-2.0
#include "daemon/tcp/tcp_connector.h"

#include <utility>
#include <vector>

#include "daemon/tcp/tcp_socket.h"
#include "proto/failure.h"

namespace afd::daemon {

TcpConnector::TcpConnector(EventLoop& loop, JoinAddress address, OnBegun on_begun)
    : address_(std::move(address)),
      on_begun_(std::move(on_begun)),
      resolver_(loop, BackgroundThread::End::kLeave) {}

void TcpConnector::start() {
    using Found = Result<std::vector<SocketAddress>>;
    const auto begin = [this](const Found& found) {
        if (!found.ok()) return on_begun_(found.error());
        on_begun_(connect_tcp(found.value()[num_lookups_++ % found.value().size()]));
    };
    // Nobody is asked for what numbers mean.
    if (!address_.is_name) return begin(addresses_of(address_.host, address_.port));
    const auto found = std::make_shared<Found>(unavailable("not asked yet"));
    lookup_ = resolver_.run(
        [found, address = address_] { *found = addresses_of(address.host, address.port); },
        [begin, found] { begin(*found); });
}

}  // namespace afd::daemon
