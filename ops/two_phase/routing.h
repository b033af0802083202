// SPDX-License-Identifier: Apache-2.0
#pragma once

// TwoPhaseRouting: where every (token, k) of a two-phase dispatch goes; what its operators share.
//
//   slot f = n·K1 + k, K1 = K + S
//   expert(f) = expert_ids[n, k] for k < K, E + k - K for shared ones
//   (rank, local id) = the chosen replica of expert_rank_table[layer_id, expert(f)]
//   key(f) = rank·num_local_experts + local id, or -1 for an id outside [0, E+S)
//
// An id from E on is a pick of that shared expert like any other: such a slot is sent, and summed
// with its weight, beside the slot that every token has with that expert.
// Block b holds the tokens [b·block_size, (b + 1)·block_size) and the slots of these tokens.
// Source: docs/specification.md, sections 4 and 7.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "ops/record/operator_check.h"
#include "ops/tensor/tensor_view.h"
#include "proto/status.h"

namespace afd::ops {

struct TwoPhaseRouting {
    int64_t num_ranks = 0;
    int64_t num_local_experts = 0;  // Local ids of every rank are below.
    int64_t shared_expert_num = 0;  // S
    int64_t session_id = 0;         // Of the sender; chooses among replicas.
    int64_t layer_id = 0;
    int64_t block_size = 8192;  // Tokens.
    // One of num_replicas >= 1; null: session_id mod num_replicas.
    size_t (*choose_replica)(int64_t session_id, size_t num_replicas) = nullptr;

    ConstTensorView expert_ids = {};         // [N, K] int32, logical; K may be 0.
    ConstTensorView expert_rank_table = {};  // [L, E+S, R, 2] int32; rank -1: no more replicas
};

// All attributes, and shapes and limits of the fields above. REQUIRES: `check` was made with the
// request of which `routing` is a part.
void check_two_phase_routing(OperatorCheck& check, const TwoPhaseRouting& routing);

// The values of the table's layer, replica by replica; `held` is scratch of num_ranks ·
// num_local_experts elements. REQUIRES: check_two_phase_routing found nothing.
Result<> check_two_phase_table(const OperatorSpec& spec,
                               const TwoPhaseRouting& routing,
                               std::span<uint8_t> held);

// num_ranks · num_local_experts, E + S, and the slots of the largest block, with values out of
// range made legal: for sizes of scratch before a request is judged.
size_t two_phase_num_keys(const TwoPhaseRouting& routing);
size_t two_phase_num_experts(const TwoPhaseRouting& routing);
size_t two_phase_block_slots(const TwoPhaseRouting& routing);

// The slots of a checked request, with the keys of its experts.
class TwoPhaseSlots {
  public:
    // `key_of_expert` is memory for two_phase_num_experts(routing) elements, used until the end.
    TwoPhaseSlots(const TwoPhaseRouting& routing, int32_t* key_of_expert);

    size_t num_tokens() const { return num_tokens_; }
    size_t top_k() const { return top_k_; }
    size_t slots_per_token() const { return top_k_ + num_shared_; }  // K1
    size_t num_slots() const { return num_tokens_ * slots_per_token(); }
    size_t num_local_experts() const { return num_local_experts_; }
    size_t num_keys() const { return num_keys_; }
    size_t num_blocks() const { return (num_tokens_ + block_size_ - 1) / block_size_; }

    size_t first_token(size_t block) const { return std::min(num_tokens_, block * block_size_); }
    size_t first_slot(size_t block) const { return first_token(block) * slots_per_token(); }
    // Slots of the largest block.
    size_t block_slots() const { return first_slot(1); }

    // The logical expert, or -1 if the slot is masked.
    int32_t expert_of(size_t slot) const { return expert_of(slot / slots_per_token(), slot); }
    int32_t key_of(size_t slot) const {
        const int32_t expert = expert_of(slot);
        return expert < 0 ? -1 : key_of_expert_[expert];
    }

    // Calls body(slot, key) for every slot of a token that is not masked, ascending.
    template <typename Body>
    void for_each_of_token(size_t token, const Body& body) const {
        size_t slot = token * slots_per_token();
        const int32_t* ids = ids_ + token * top_k_;
        for (size_t k = 0; k < top_k_; ++k, ++slot) {
            // One comparison: a negative id is a large unsigned one.
            if (static_cast<uint32_t>(ids[k]) < num_experts_) body(slot, key_of_expert_[ids[k]]);
        }
        for (size_t j = 0; j < num_shared_; ++j, ++slot)
            body(slot, key_of_expert_[num_routed_ + j]);
    }

  private:
    int32_t expert_of(size_t token, size_t slot) const {
        const size_t k = slot - token * slots_per_token();
        if (k >= top_k_) return static_cast<int32_t>(num_routed_ + k - top_k_);
        const int32_t id = ids_[token * top_k_ + k];
        return static_cast<uint32_t>(id) < num_experts_ ? id : -1;
    }

    const int32_t* ids_;
    const int32_t* key_of_expert_;
    size_t num_tokens_;
    size_t top_k_;
    size_t num_shared_;
    size_t num_experts_;  // E + S
    size_t num_routed_;
    size_t num_local_experts_;
    size_t num_keys_;
    size_t block_size_;
};

}  // namespace afd::ops
