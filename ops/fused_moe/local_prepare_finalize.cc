// SPDX-License-Identifier: Apache-2.0

#include "ops/fused_moe/local_prepare_finalize.h"

namespace afd::ops {

LocalPrepareFinalize::LocalPrepareFinalize(const FusedMoeConfig& config, Parallel& parallel)
    : InProcess(config), parallel_(parallel), slots_(config.num_micro_batches, Rename(config)) {
    for (Rename& slot : slots_) {
        slot.local_ids.resize(config.max_num_tokens * (config.top_k + config.num_shared));
        slot.weights.resize(slot.local_ids.size());
    }
}

Result<Ticket> LocalPrepareFinalize::prepare_async(const MoeInput& input, uint32_t index) {
    AFD_ASSIGN(Ticket ticket, open(input, index));
    Rename& slot = slots_[index];
    slot.x = slot.rows.prepare(input.x.slice(0, input.num_tokens), parallel_, profile());
    LocalExpert* local = slot.local_ids.data();
    float* weight = slot.weights.data();
    for (size_t token = 0; token < input.num_tokens; ++token) {
        for (size_t k = 0; k < input.top_k; ++k) {
            *local++ = local_expert(input.topk_ids[token * input.top_k + k]);
            *weight++ = input.topk_weights[token * input.top_k + k];
        }
        for (size_t j = 0; j < input.num_shared; ++j) {
            *local++ = shared_expert(j);
            *weight++ = 1.0f;
        }
    }
    return ticket;
}

Activations LocalPrepareFinalize::activations(const Ticket& ticket) const {
    const Rename& slot = slots_[ticket.slot()];
    return StandardActivations{.x = slot.x,
                               .layer_id = input(ticket).layer_id,
                               .num_slots = input(ticket).num_slots(),
                               .local_ids = slot.local_ids.data(),
                               .weights = slot.weights.data()};
}

Result<void> LocalPrepareFinalize::finalize(Ticket&& ticket,
                                            const TopKWeightAndReduce& reduce,
                                            Rows<Bf16> out) {
    const Ticket taken = std::move(ticket);
    reduce.apply(output(taken), input(taken), config().num_experts, nullptr, out);
    return {};
}

}  // namespace afd::ops
