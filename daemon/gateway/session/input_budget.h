// SPDX-License-Identifier: Apache-2.0
#pragma once

// InputBudget: how many bytes of half-sent requests all connections of all front ends may hold
// together, and for how long one of them may stay half sent. 100 clients that each sent half of the
// largest request held 2 GB, for ever. Whole requests that wait for their turn are bytes too.
//
// Whoever holds most pays: when the sum exceeds the limit, the largest holders are given up until
// it does not. So a client with a small request is never cut off because others hold much. Pure but
// for the calls of the holders.

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>

namespace afd::daemon {

class InputBudget {
  public:
    struct Limits {
        size_t bytes_max = 0;     // Of all holders. REQUIRES: a whole request fits.
        uint64_t timeout_ms = 0;  // Of one half-sent request.
    };

    class Holder {
      public:
        virtual ~Holder() = default;
        // Lets go of its bytes: calls hold() with 0. `why` is for its client.
        virtual void give_up(const std::string& why) = 0;
    };

    explicit InputBudget(const Limits& limits) : limits_(limits) {}

    // `holder` has `bytes` now. It may be given up within the call, and so may others.
    // REQUIRES: it says 0 before it is destroyed.
    void hold(Holder& holder, size_t bytes);

    size_t bytes() const { return bytes_; }
    uint64_t timeout_ms() const { return limits_.timeout_ms; }

  private:
    const Limits limits_;
    size_t bytes_ = 0;
    std::unordered_map<Holder*, size_t> held_;  // None is 0.
};

}  // namespace afd::daemon
