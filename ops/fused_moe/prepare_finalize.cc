// SPDX-License-Identifier: Apache-2.0

#include "ops/fused_moe/prepare_finalize.h"

#include <string>
#include <thread>

#include "proto/check.h"
#include "proto/failure.h"

namespace afd::ops {

Ticket& Ticket::operator=(Ticket&& other) noexcept {
    // Moved onto itself, cancel() would drop the call that the ticket stands for.
    if (this == &other) return *this;
    cancel();
    owner_ = std::exchange(other.owner_, nullptr);
    slot_ = other.slot_;
    id_ = other.id_;
    return *this;
}

Result<Ticket> PrepareFinalize::prepare(const MoeInput& input,
                                        uint32_t slot,
                                        std::chrono::microseconds timeout) {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    AFD_ASSIGN(Ticket ticket, prepare_async(input, slot));
    while (!capability().is_remote && !ready(ticket)) {
        if (std::chrono::steady_clock::now() >= deadline) {
            return deadline_exceeded("{} did not bring the rows of slot {} within {} us",
                                     with(capability().name, slot, timeout.count()));
        }
        std::this_thread::yield();
    }
    return ticket;
}

ActivationMetadata PrepareFinalize::metadata(const Ticket&) const {
    AFD_ASSERT(false,
               "%s says nothing of the rows that it hands over",
               std::string(capability().name).c_str());
    return {};
}

Result<DispatchLayout> PrepareFinalize::share_layout(const Ticket&) {
    return failed_precondition("{} does not share layouts; every call lays out its rows itself",
                               with(capability().name));
}

void PrepareFinalize::release_layout(uint32_t index) {
    AFD_ASSERT(false, "layout %u of a part that shares none", index);
}

Result<DeferredRows> PrepareFinalize::deferred(const Ticket&) const {
    return failed_precondition("{} combines while the rows come back; it has no rows to hand out",
                               with(capability().name));
}

void Ticket::cancel() {
    // Emptied first, so that a ticket is cancelled once at most.
    if (owner_ != nullptr) std::exchange(owner_, nullptr)->cancel(slot_, id_);
}

}  // namespace afd::ops
