// SPDX-License-Identifier: Apache-2.0
#pragma once

// NotingHeir: keeps what a gateway that leaves gives away.

#include <utility>
#include <vector>

#include "daemon/gateway/session/handed_connection.h"

namespace afd::daemon {

struct NotingHeir final : Heir {
    void take(HandedConnection connection) override {
        connections.push_back(std::move(connection));
    }
    void take(HandedStream stream) override { streams.push_back(std::move(stream)); }

    std::vector<HandedConnection> connections;
    std::vector<HandedStream> streams;
};

}  // namespace afd::daemon
