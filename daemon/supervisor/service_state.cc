// SPDX-License-Identifier: Apache-2.0
#include "daemon/supervisor/service_state.h"

#include <algorithm>

namespace afd::daemon {

namespace {

using IsLost = bool (*)(const WorkerSlot& slot);

bool has_failed(const WorkerSlot& slot) {
    return !slot.failure().empty();
}

bool is_away(const WorkerSlot& slot) {
    return has_failed(slot) || slot.is_halted();
}

bool can_do_without_those(WorkerSlots ffn, IsLost is, const CanDoWithout& can_do_without) {
    std::vector<bool> is_lost;
    for (const auto& slot : ffn) is_lost.push_back(is(*slot));
    if (std::find(is_lost.begin(), is_lost.end(), true) == is_lost.end()) return true;
    return can_do_without && can_do_without(is_lost);
}

void add_reason(const std::string& reason, std::string& reasons) {
    if (!reasons.empty()) reasons += "; ";
    reasons += reason;
}

}  // namespace

bool reaches_experts(WorkerSlots ffn, const CanDoWithout& can_do_without) {
    return can_do_without_those(ffn, has_failed, can_do_without);
}

ServiceState service_state(WorkerSlots attention,
                           WorkerSlots ffn,
                           const CanDoWithout& can_do_without) {
    using Level = ServiceState::Level;
    ServiceState state;
    std::string halted;
    for (const auto& slots : {ffn, attention}) {
        for (const auto& slot : slots) {
            if (has_failed(*slot)) {
                add_reason(slot->failure(), state.reason);
            } else if (slot->is_halted()) {
                add_reason(slot->name() + " is halted (afdctl restart-worker --worker " +
                               slot->short_name() + " starts it again)",
                           halted);
            }
        }
    }
    const bool some_serve = std::any_of(
        attention.begin(), attention.end(), [](const auto& slot) { return !is_away(*slot); });
    const bool some_can_serve = std::any_of(
        attention.begin(), attention.end(), [](const auto& slot) { return !has_failed(*slot); });
    const bool has_failures = !state.reason.empty();
    if (has_failures && !(some_can_serve && reaches_experts(ffn, can_do_without))) {
        state.level = Level::kFailed;
    } else if (!(some_serve && can_do_without_those(ffn, is_away, can_do_without))) {
        state.level = Level::kHalted;
        add_reason(halted, state.reason);
    } else if (has_failures) {
        state.level = Level::kDegraded;
    }
    return state;
}

}  // namespace afd::daemon
