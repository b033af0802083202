// SPDX-License-Identifier: Apache-2.0
#pragma once

// TurnBudget: how much one connection may have of one turn of the loop: 32 messages, or 1 ms, which
// a few long ones take. The rest waits for the next turn (NextTurn), behind the other connections:
// 20,000 messages that came at once held everybody else for 0.6 s.

#include <uv.h>

#include <cstdint>

namespace afd::daemon {

class TurnBudget {
  public:
    static constexpr uint32_t kMessagesMax = 32;
    static constexpr uint64_t kNsMax = 1'000'000;

    // Before each message: whether it may still be of this turn. The first always is.
    bool take() {
        if (num_messages_ > 0 && uv_hrtime() - start_ns_ > kNsMax) return false;
        return num_messages_++ < kMessagesMax;
    }

  private:
    const uint64_t start_ns_ = uv_hrtime();
    uint32_t num_messages_ = 0;
};

}  // namespace afd::daemon
