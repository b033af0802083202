// SPDX-License-Identifier: Apache-2.0
#include "daemon/supervisor/service_state.h"

#include <algorithm>

namespace afd::daemon {

ServiceState service_state(std::span<const std::unique_ptr<WorkerSlot>> attention,
                           std::span<const std::unique_ptr<WorkerSlot>> ffn) {
    ServiceState state;
    bool has_experts = true;
    for (const auto& slots : {ffn, attention}) {
        for (const auto& slot : slots) {
            if (slot->failure().empty()) continue;
            if (slot->role() == control::FFN) has_experts = false;
            if (!state.reason.empty()) state.reason += "; ";
            state.reason += slot->failure();
        }
    }
    if (state.reason.empty()) return state;
    const bool has_attention =
        std::any_of(attention.begin(), attention.end(), [](const auto& slot) {
            return slot->failure().empty() && !slot->is_halted();
        });
    state.level = has_experts && has_attention ? ServiceState::Level::kDegraded
                                               : ServiceState::Level::kFailed;
    return state;
}

}  // namespace afd::daemon
