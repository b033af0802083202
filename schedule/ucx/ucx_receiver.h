// SPDX-License-Identifier: Apache-2.0
#pragma once

// UcxReceiver: who gets what arrives at a UcxWorker.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "schedule/ucx/ucx_message.h"

namespace afd::schedule {

// A way to another worker. One that a peer opened is closed after a while if nobody adopts it.
class UcxPath;

class UcxReceiver {
  public:
    virtual ~UcxReceiver() = default;
    // Both run under the lock, on whichever thread makes the turn. The bytes are the peer's: check
    // them.
    virtual void on_message(const std::shared_ptr<UcxPath>& path,
                            const UcxHeader& header,
                            std::span<const std::byte> payload) = 0;
    // Every few milliseconds, and soon after wake().
    virtual void on_tick(uint64_t now_us) = 0;
};

}  // namespace afd::schedule
