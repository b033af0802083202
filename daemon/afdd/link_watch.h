// SPDX-License-Identifier: Apache-2.0
#pragma once

// LinkWatch: which links between workers are down though both of their ends serve. Requests over
// one hang until the deadline of their round, and nothing else tells why: a firewall is in the way,
// or an address that the other host does not reach. Pure: from one reading of the status after the
// other.

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "proto/client.pb.h"

namespace afd::daemon {

class LinkWatch {
  public:
    // A link is made within a second, and made again within a few when it breaks.
    static constexpr uint64_t kDownMs = 10'000;
    static constexpr uint64_t kPeriodMs = 2'000;

    struct News {
        bool is_down = false;  // Else it is open again.
        std::string text;
    };

    // What has changed since the last reading. `own_address`: at which FFN workers of this host
    // listen. Of another host the text has the address from which it joined; its ucx_host may be
    // another.
    std::vector<News> look(const client::Status& status,
                           const std::string& own_address,
                           uint64_t now_ms);

    // Of all that are down; empty: none is.
    std::string reason() const;

  private:
    using Ends = std::pair<uint32_t, uint32_t>;  // Session and rank.
    struct Down {
        uint64_t since_ms = 0;
        std::string text;  // Empty: not for long enough to speak of it.
    };

    std::map<Ends, Down> down_;
};

}  // namespace afd::daemon
