// SPDX-License-Identifier: Apache-2.0
#pragma once

// What goes from an afdd to the one that takes its place (daemon/handover/): connections of clients
// for which nothing runs, and requests that a Resume may ask for.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/loop/unique_fd.h"
#include "proto/client.pb.h"

namespace afd::daemon {

// A door's kind, as both programs name it (Door.kind of handover.proto).
inline constexpr std::string_view kSocketDoor = "socket";
inline constexpr std::string_view kHttpDoor = "http";

struct HandedConnection {
    std::string_view door;  // Its kind.
    UniqueFd socket;
    std::string unread;  // What the client has sent, from the first request on that is not served.
    std::string unsent;  // What it is still to be sent.
};

struct HandedStream {
    std::string id;
    std::string account;
    std::string name;  // Of the connection that began it, in log lines.
    client::Accepted accepted;
    std::vector<std::string> chunks;  // As they are on the wire.
    client::Response end;
    uint64_t first_place = 0;        // Of the first of `chunks`,
    uint64_t num_tokens_before = 0;  // and tokens in those before it.
    uint64_t grace_ms = 0;           // What is left of it.
    bool is_unheard = false;         // Its client went away before it had heard all.
    std::string form;                // Of the front end (SessionForm::text()).
};

// Takes them. What is given to it is gone here.
class Heir {
  public:
    virtual ~Heir() = default;
    virtual void take(HandedConnection connection) = 0;
    virtual void take(HandedStream stream) = 0;
};

}  // namespace afd::daemon
