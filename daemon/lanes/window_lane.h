// SPDX-License-Identifier: Apache-2.0
#pragma once

// WindowLane: one micro-batch through the windows of the FFN workers. The rules of its flags are
// kept by window_prepare_finalize.h; here it is told who is waited for.

#include "daemon/lanes/moe_lane.h"
#include "daemon/lanes/window_prepare_finalize.h"
#include "schedule/transport/transport.h"

namespace afd::daemon {

class WindowLane final : public MoeLane {
  public:
    // What all lanes of the worker share; all outlive the object. `moe` is composed of `windows`.
    struct Parts {
        ops::FusedMoe* moe = nullptr;
        WindowPrepareFinalize* windows = nullptr;
        schedule::DispatchTransport* transport = nullptr;
        bool routes = false;  // router = ffn
    };

    WindowLane(const Parts& parts, uint32_t micro_batch, uint32_t rows_max)
        : MoeLane({.rows = LaneRows::kAny,
                   .rows_max = rows_max,
                   .has_peers = true,
                   .routes = parts.routes},
                  *parts.moe,
                  micro_batch),
          parts_(parts) {}

    const float* topk_weights() const override { return parts_.windows->topk_weights(slot()); }
    int32_t round() const override { return parts_.windows->round(slot()); }

    // Results come before the acknowledgement: a call may be ready before the slot is free again.
    bool is_answered(schedule::Order order) const override {
        return (is_open() && ready()) || parts_.windows->is_answered(slot(), order);
    }
    std::optional<LaneWait> waits_for(uint64_t now_us) override {
        const auto info = parts_.windows->wait_info(slot());
        if (!info) return std::nullopt;
        return LaneWait{*info, parts_.transport->peer(static_cast<uint32_t>(info->peer), now_us)};
    }

  private:
    const Parts parts_;
};

}  // namespace afd::daemon
