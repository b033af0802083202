// SPDX-License-Identifier: Apache-2.0
#pragma once

// FrontEnd: one door through which clients of one protocol come. While it lives it accepts
// connections and gives each as a ClientSession to the SessionHost that it was made with.

#include <string>

namespace afd::daemon {

class FrontEnd {
  public:
    // Accepts no more; sessions that were adopted go on.
    virtual ~FrontEnd() = default;

    // Where clients find it, for the log: "socket /run/user/0/afd/demo.sock".
    virtual std::string address() const = 0;
};

}  // namespace afd::daemon
