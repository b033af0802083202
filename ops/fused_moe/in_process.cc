// SPDX-License-Identifier: Apache-2.0

#include "ops/fused_moe/in_process.h"

#include <string>

#include "proto/check.h"

namespace afd::ops {

InProcess::InProcess(const FusedMoeConfig& config)
    : config_(config), slots_(config.num_micro_batches) {}

Result<Ticket> InProcess::open(const MoeInput& input, uint32_t index) {
    AFD_ASSERT(index < slots_.size(), "slot %u of %zu", index, slots_.size());
    Slot& slot = slots_[index];
    if (slot.in_use) {
        return Error{Code::kInvalidArgument,
                     "micro_batch " + std::to_string(index) +
                         " is in flight; finish or drop its ticket first"};
    }
    slot = {.in_use = true, .has_output = false, .id = next_id_++, .input = input, .output = {}};
    return Ticket(this, index, slot.id);
}

Result<void> InProcess::finalize_async(const Ticket& ticket, const ExpertsOutput& output) {
    Slot& slot = slots_[ticket.slot()];
    slot.output = output;
    slot.has_output = true;
    return {};
}

bool InProcess::finalized(const Ticket& ticket) const {
    return slots_[ticket.slot()].has_output;
}

const ExpertsOutput& InProcess::output(const Ticket& ticket) const {
    const Slot& slot = slots_[ticket.slot()];
    AFD_ASSERT(slot.has_output, "finalize before finalize_async");
    return slot.output;
}

void InProcess::cancel(uint32_t slot, uint64_t id) {
    AFD_ASSERT(slots_[slot].in_use && slots_[slot].id == id, "slot %u", slot);
    slots_[slot].in_use = false;
}

}  // namespace afd::ops
