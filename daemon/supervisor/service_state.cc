// SPDX-License-Identifier: Apache-2.0
#include "daemon/supervisor/service_state.h"

#include <algorithm>

namespace afd::daemon {

bool reaches_experts(WorkerSlots ffn, const CanDoWithout& can_do_without) {
    std::vector<bool> is_lost;
    for (const auto& slot : ffn) is_lost.push_back(!slot->failure().empty());
    if (std::find(is_lost.begin(), is_lost.end(), true) == is_lost.end()) return true;
    return can_do_without && can_do_without(is_lost);
}

ServiceState service_state(WorkerSlots attention,
                           WorkerSlots ffn,
                           const CanDoWithout& can_do_without) {
    ServiceState state;
    for (const auto& slots : {ffn, attention}) {
        for (const auto& slot : slots) {
            if (slot->failure().empty()) continue;
            if (!state.reason.empty()) state.reason += "; ";
            state.reason += slot->failure();
        }
    }
    if (state.reason.empty()) return state;
    const bool some_serve = std::any_of(attention.begin(), attention.end(), [](const auto& slot) {
        return slot->failure().empty() && !slot->is_halted();
    });
    state.level = some_serve && reaches_experts(ffn, can_do_without)
                      ? ServiceState::Level::kDegraded
                      : ServiceState::Level::kFailed;
    return state;
}

}  // namespace afd::daemon
