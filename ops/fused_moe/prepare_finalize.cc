// SPDX-License-Identifier: Apache-2.0

#include "ops/fused_moe/prepare_finalize.h"

namespace afd::ops {

Ticket& Ticket::operator=(Ticket&& other) noexcept {
    if (this == &other) return *this;
    cancel();
    owner_ = std::exchange(other.owner_, nullptr);
    slot_ = other.slot_;
    id_ = other.id_;
    return *this;
}

void Ticket::cancel() {
    if (owner_ != nullptr) std::exchange(owner_, nullptr)->cancel(slot_, id_);
}

}  // namespace afd::ops
