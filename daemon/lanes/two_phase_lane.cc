// SPDX-License-Identifier: Apache-2.0
#include "daemon/lanes/two_phase_lane.h"

namespace afd::daemon {

using schedule::Order;

TwoPhaseLane::TwoPhaseLane(const Parts& parts, const Metrics& metrics, uint32_t rows_max)
    : MoeLane(
          {.rows = LaneRows::kLongPrompts, .rows_max = rows_max, .has_peers = true}, *parts.moe, 0),
      parts_(parts),
      metrics_(metrics) {}

Result<> TwoPhaseLane::start(const ops::MoeInput& input, ops::Rows<ops::Bf16> out) {
    parts_.rounds->expect_output(out);
    return MoeLane::start(input, out);
}

bool TwoPhaseLane::can_advance() const {
    return parts_.rounds->has_step(Order::kAcquire) || MoeLane::can_advance();
}

Result<> TwoPhaseLane::advance() {
    if (parts_.rounds->advance()) return {};
    // What can_advance() saw may have been the shared experts' turn only.
    return MoeLane::advance();
}

Result<> TwoPhaseLane::finish() {
    Result<> finished = MoeLane::finish();
    metrics_.add(finished.ok() ? Counter::kTwoPhaseRounds : Counter::kTwoPhaseFallbacks, 1);
    return finished;
}

bool TwoPhaseLane::is_answered(Order order) const {
    return (is_open() && ready()) || parts_.rounds->can_advance(order);
}

std::optional<LaneWait> TwoPhaseLane::waits_for(uint64_t now_us) {
    const auto info = parts_.rounds->wait_info();
    if (!info) return std::nullopt;
    return LaneWait{*info, parts_.transport->peer(static_cast<uint32_t>(info->peer), now_us)};
}

}  // namespace afd::daemon
