// SPDX-License-Identifier: Apache-2.0
#pragma once

// FrontEnd: one door through which clients of one protocol come. While it lives it accepts
// connections and gives each as a ClientSession to the SessionOwner that it was made with.

#include <string>
#include <string_view>

#include "daemon/gateway/session/handed_connection.h"

namespace afd::daemon {

class FrontEnd {
  public:
    // Accepts no more; sessions that were adopted go on.
    virtual ~FrontEnd() = default;

    // kSocketDoor, kHttpDoor.
    virtual std::string_view kind() const = 0;
    // Where clients find it, for the log: "socket /run/user/0/afd/demo.sock".
    virtual std::string address() const = 0;

    // For another afdd that is to accept in the place of this one; stays the front end's.
    virtual int listening_socket() const = 0;
    // Accepts nothing until go_on(); whoever connects meanwhile waits, or is that afdd's.
    virtual void pause() = 0;
    virtual void go_on() = 0;
    // The address is that afdd's from now on: nothing of it is removed at the end, unless go_on()
    // comes because that one is gone.
    virtual void leave() = 0;
    // A connection of this kind comes from another afdd.
    virtual void adopt(HandedConnection connection) = 0;
};

}  // namespace afd::daemon
