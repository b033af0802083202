// SPDX-License-Identifier: Apache-2.0
#include "daemon/supervisor/slot_health.h"

#include <fmt/core.h>

#include <utility>

namespace afd::daemon {

SlotHealth::SlotHealth(Settings settings)
    : settings_(std::move(settings)),
      is_tried_for_ever_(settings_.has_predecessors || !settings_.host.empty()) {}

bool SlotHealth::on_hindered(const std::string& why) {
    std::string text = settings_.name + " " + why;
    return std::exchange(hindrance_, text) != text;
}

bool SlotHealth::on_unhindered() {
    if (hindrance_.empty()) return false;
    hindrance_.clear();
    was_hindered_ = true;
    return true;
}

void SlotHealth::on_ready() {
    is_tried_for_ever_ = true;
    hindrance_.clear();
    was_hindered_ = false;
    // One that always died when it had come so far has to show more.
    if (!dies_when_ready_) failure_.clear();
}

bool SlotHealth::on_settled() {
    num_failures_ = 0;
    dies_when_ready_ = false;
    return !std::exchange(failure_, {}).empty();
}

void SlotHealth::forget() {
    hindrance_.clear();
    was_hindered_ = false;
    failure_.clear();
    num_failures_ = 0;
    dies_when_ready_ = false;
}

SlotHealth::Verdict SlotHealth::on_failed(const std::string& why,
                                          bool is_permanent,
                                          uint64_t num_more) {
    ++num_failures_;
    const bool is_failing = is_permanent || num_failures_ >= settings_.start_attempts + num_more;
    if (!is_failing) return Verdict::kTryAgain;
    if (!is_tried_for_ever_) return Verdict::kGiveUp;
    failure_ = settings_.spawn ? why : why + "; start it again by hand (spawn = false)";
    return Verdict::kFailing;
}

std::string SlotHealth::failure() const {
    if (!hindrance_.empty()) return hindrance_;
    if (!failure_.empty() || !was_hindered_) return failure_;
    return fmt::format("{}: host '{}' has joined; it starts", settings_.name, settings_.host);
}

}  // namespace afd::daemon
