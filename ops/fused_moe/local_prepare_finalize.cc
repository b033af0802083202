// SPDX-License-Identifier: Apache-2.0

#include "ops/fused_moe/local_prepare_finalize.h"

#include <string>

#include "proto/check.h"

namespace afd::ops {

LocalPrepareFinalize::LocalPrepareFinalize(const FusedMoeConfig& config)
    : config_(config), slots_(config.num_micro_batches) {
    for (Slot& slot : slots_) {
        slot.local_ids.resize(config.max_num_tokens * (config.top_k + config.num_shared));
    }
}

Result<Ticket> LocalPrepareFinalize::prepare_async(const MoeInput& input, uint32_t index) {
    AFD_ASSERT(index < slots_.size(), "slot %u of %zu", index, slots_.size());
    Slot& slot = slots_[index];
    if (slot.in_use) {
        return Error{Code::kInvalidArgument,
                     "micro_batch " + std::to_string(index) +
                         " is in flight; finish or drop its ticket first"};
    }
    const size_t num_experts = config_.num_experts;
    LocalExpert* local = slot.local_ids.data();
    for (size_t token = 0; token < input.num_tokens; ++token) {
        for (size_t k = 0; k < input.top_k; ++k) {
            const int32_t id = input.topk_ids[token * input.top_k + k];
            const bool is_valid = id >= 0 && static_cast<size_t>(id) < num_experts;
            *local++ = is_valid ? LocalExpert{id} : kNoLocalExpert;
        }
        for (size_t j = 0; j < input.num_shared; ++j) {
            *local++ = LocalExpert{static_cast<int32_t>(num_experts + j)};
        }
    }
    slot.in_use = true;
    slot.has_output = false;
    slot.id = next_id_++;
    slot.input = input;
    return Ticket(this, index, slot.id);
}

bool LocalPrepareFinalize::ready(const Ticket&) const {
    return true;
}

Activations LocalPrepareFinalize::activations(const Ticket& ticket) const {
    const Slot& slot = slots_[ticket.slot()];
    return StandardActivations{.x = slot.input.x.slice(0, slot.input.num_tokens),
                               .layer_id = slot.input.layer_id,
                               .num_slots = slot.input.num_slots(),
                               .local_ids = slot.local_ids.data()};
}

Result<void> LocalPrepareFinalize::finalize_async(const Ticket& ticket,
                                                  const ExpertsOutput& output) {
    Slot& slot = slots_[ticket.slot()];
    slot.output = output;
    slot.has_output = true;
    return {};
}

bool LocalPrepareFinalize::finalized(const Ticket& ticket) const {
    return slots_[ticket.slot()].has_output;
}

Result<void> LocalPrepareFinalize::finalize(Ticket&& ticket,
                                            const TopKWeightAndReduce& reduce,
                                            Rows<Bf16> out) {
    Ticket taken = std::move(ticket);
    const Slot& slot = slots_[taken.slot()];
    AFD_ASSERT(slot.has_output, "finalize before finalize_async");
    reduce.apply(slot.output, slot.input, config_.num_experts, nullptr, out);
    return {};
}

void LocalPrepareFinalize::cancel(uint32_t slot, uint64_t id) {
    AFD_ASSERT(slots_[slot].in_use && slots_[slot].id == id, "slot %u", slot);
    slots_[slot].in_use = false;
}

}  // namespace afd::ops
