// SPDX-License-Identifier: Apache-2.0
#pragma once

// Outage: a time in which the instance can serve nobody, and says why to whoever asks for something
// new. Requests that were accepted before wait for its end, but not for ever: when it lasts longer
// than its patience, it says so once, and they are to end with its error.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "daemon/loop/event_loop.h"
#include "proto/status.h"

namespace afd::daemon {

class Outage {
  public:
    // `on_lasting` ends what waits.
    Outage(EventLoop& loop, uint64_t patience_ms, std::function<void(const Error&)> on_lasting);

    // It begins, or goes on for another reason.
    void begin(const std::string& why);
    void end();

    // Errors: kUnavailable while it lasts, with the reason.
    Result<> check_admits() const;

  private:
    const uint64_t patience_ms_;
    Timer patience_;
    std::optional<Error> error_;  // Of now.
};

}  // namespace afd::daemon
