// SPDX-License-Identifier: Apache-2.0
#include "daemon/supervisor/service_state.h"

#include <algorithm>

namespace afd::daemon {

bool reaches_experts(uint32_t session, WorkerSlots ffn, const SessionRanks& ranks) {
    return std::all_of(ffn.begin(), ffn.end(), [&](const auto& slot) {
        const bool is_needed = ranks.empty() || ranks[session].contains(slot->index());
        return slot->failure().empty() || !is_needed;
    });
}

ServiceState service_state(WorkerSlots attention, WorkerSlots ffn, const SessionRanks& ranks) {
    ServiceState state;
    for (const auto& slots : {ffn, attention}) {
        for (const auto& slot : slots) {
            if (slot->failure().empty()) continue;
            if (!state.reason.empty()) state.reason += "; ";
            state.reason += slot->failure();
        }
    }
    if (state.reason.empty()) return state;
    const bool some_serve = std::any_of(attention.begin(), attention.end(), [&](const auto& slot) {
        return slot->failure().empty() && !slot->is_halted() &&
               reaches_experts(slot->index(), ffn, ranks);
    });
    state.level = some_serve ? ServiceState::Level::kDegraded : ServiceState::Level::kFailed;
    return state;
}

}  // namespace afd::daemon
