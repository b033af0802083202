// SPDX-License-Identifier: Apache-2.0

#include "ops/fused_moe/local_batched_prepare_finalize.h"

#include <algorithm>

namespace afd::ops {
namespace {

// Elements that one task copies: some microseconds of work.
constexpr size_t kElementsPerTask = size_t{1} << 16;

}  // namespace

LocalBatchedPrepareFinalize::LocalBatchedPrepareFinalize(const FusedMoeConfig& config,
                                                         Parallel& parallel)
    : InProcess(config),
      capability_(kCapability),
      max_num_tokens_(kCapability.num_dispatchers * config.max_num_tokens),
      num_local_experts_(config.num_experts + config.num_shared),
      parallel_(parallel),
      batches_(config.num_micro_batches, Batch(config)) {
    capability_.max_num_tokens_per_rank = config.max_num_tokens;
    const size_t num_places = num_local_experts_ * max_num_tokens_;
    for (Batch& batch : batches_) {
        if (config.quantised_dispatch) {
            batch.int8.resize(num_places * config.hidden);
            batch.scale.resize(num_places);
        } else {
            batch.bf16.resize(num_places * config.hidden);
        }
        batch.expert_num_tokens.resize(num_local_experts_);
        batch.row_index.resize(config.max_num_tokens * (config.top_k + config.num_shared));
    }
}

Result<Ticket> LocalBatchedPrepareFinalize::prepare_async(const MoeInput& input, uint32_t index) {
    AFD_ASSIGN(Ticket ticket, open(input, index));
    Batch& batch = batches_[index];
    index_slots(input, batch);
    copy_rows(
        input, batch.rows.prepare(input.x.slice(0, input.num_tokens), parallel_, profile()), batch);
    return ticket;
}

void LocalBatchedPrepareFinalize::index_slots(const MoeInput& input, Batch& batch) const {
    std::fill(batch.expert_num_tokens.begin(), batch.expert_num_tokens.end(), 0);
    const size_t num_slots = input.num_slots();
    for (size_t token = 0; token < input.num_tokens; ++token) {
        const int32_t* ids = input.topk_ids + token * input.top_k;
        int32_t* rows = batch.row_index.data() + token * num_slots;
        for (size_t k = 0; k < num_slots; ++k) {
            const bool is_shared = k >= input.top_k;
            const auto expert = static_cast<int32_t>(is_shared ? shared_expert(k - input.top_k)
                                                               : local_expert(ids[k]));
            rows[k] = -1;
            if (expert < 0) continue;
            const int32_t* first = is_shared ? ids + k : std::find(ids, ids + k, expert);
            if (first != ids + k) {
                rows[k] = rows[first - ids];
                continue;
            }
            rows[k] = expert * static_cast<int32_t>(max_num_tokens_) +
                      batch.expert_num_tokens[static_cast<size_t>(expert)]++;
        }
    }
}

void LocalBatchedPrepareFinalize::copy_rows(const MoeInput& input,
                                            const ActivationRows& rows,
                                            Batch& batch) {
    const size_t hidden = config().hidden;
    const size_t num_slots = input.num_slots();
    const size_t tokens_per_task = kElementsPerTask / std::max<size_t>(num_slots * hidden, 1) + 1;
    const auto copy = [&](size_t task, unsigned) {
        const size_t last = std::min<size_t>(input.num_tokens, (task + 1) * tokens_per_task);
        for (size_t i = task * tokens_per_task * num_slots; i < last * num_slots; ++i) {
            if (batch.row_index[i] < 0) continue;
            const size_t token = i / num_slots;
            const auto place = static_cast<size_t>(batch.row_index[i]);
            if (rows.is_int8()) {
                std::copy_n(rows.int8.values.row(token), hidden, &batch.int8[place * hidden]);
                batch.scale[place] = rows.int8.row_scale[token];
            } else {
                std::copy_n(rows.bf16.row(token), hidden, &batch.bf16[place * hidden]);
            }
        }
    };
    const size_t num_tasks = (input.num_tokens + tokens_per_task - 1) / tokens_per_task;
    if (num_tasks == 1) {
        copy(0, 0);
    } else if (num_tasks > 1) {
        parallel_.run(num_tasks, copy);
    }
}

Activations LocalBatchedPrepareFinalize::activations(const Ticket& ticket) const {
    const Batch& batch = batches_[ticket.slot()];
    const size_t hidden = config().hidden;
    const size_t num_places = num_local_experts_ * max_num_tokens_;
    BatchedActivations batched{.x = {.bf16 = make_rows(batch.bf16.data(), num_places, hidden)},
                               .layer_id = input(ticket).layer_id,
                               .num_local_experts = num_local_experts_,
                               .max_num_tokens = max_num_tokens_,
                               .expert_num_tokens = batch.expert_num_tokens.data()};
    if (config().quantised_dispatch) {
        batched.x = {
            .int8 = {make_rows(batch.int8.data(), num_places, hidden), batch.scale.data()}};
    }
    return batched;
}

Result<void> LocalBatchedPrepareFinalize::finalize(Ticket&& ticket,
                                                   const TopKWeightAndReduce& reduce,
                                                   Rows<Bf16> out) {
    const Ticket taken = std::move(ticket);
    const int32_t* row_index = batches_[taken.slot()].row_index.data();
    reduce.apply(output(taken), input(taken), config().num_experts, row_index, out);
    return {};
}

}  // namespace afd::ops
