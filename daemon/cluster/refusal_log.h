// SPDX-License-Identifier: Apache-2.0
#pragma once

// RefusalLog: which lines about those who were refused are worth saying. Who is wrong tries again
// and again: each address hears each reason in the log once, and every ten minutes how often it was
// since. Strangers without number share one line a second. Time is passed in.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "daemon/program/log_limit.h"

namespace afd::daemon {

class RefusalLog {
  public:
    static constexpr uint64_t kAgainMs = 600'000;
    static constexpr size_t kEntriesMax = 64;

    // Says in the log why `peer` was refused, unless that is to be left out. `why` may be of a
    // link, with the peer in front. `kind`: of reasons that are one, though their numbers differ;
    // empty: each is its own.
    void warn(const std::string& peer,
              const std::string& why,
              uint64_t now_ms,
              const std::string& kind = "");

    // Before a line on `peer`, "10.0.0.5:41234" or "stand-in at [fd00::1]:41234", whose port
    // changes each time. Nothing: it is to be left out; else what to append.
    std::optional<std::string> take(const std::string& peer,
                                    const std::string& reason,
                                    uint64_t now_ms);

    // A message without the peer in front, which links put there.
    static std::string reason_of(const std::string& peer, const std::string& message) {
        return message.starts_with(peer + ": ") ? message.substr(peer.size() + 2) : message;
    }

  private:
    struct Entry {
        uint64_t said_ms = 0;
        uint64_t num_unsaid = 0;
    };

    std::map<std::pair<std::string, std::string>, Entry> entries_;  // By address and reason.
    LogLimit others_;                                               // For which there is no entry.
};

}  // namespace afd::daemon
