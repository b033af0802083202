// SPDX-License-Identifier: Apache-2.0

#include "ops/two_phase/routing.h"

#include <algorithm>
#include <string>

#include "ops/format/expert_slots.h"
#include "ops/two_phase/entries.h"

namespace afd::ops {
namespace {

// The replicas of one expert: (rank, local id) pairs up to the first negative rank.
struct Replicas {
    const int32_t* pairs;
    size_t count = 0;

    int32_t rank(size_t i) const { return pairs[2 * i]; }
    int32_t local_id(size_t i) const { return pairs[2 * i + 1]; }
};

Replicas replicas_of(const TwoPhaseRouting& r, size_t expert) {
    const size_t num_experts = r.expert_rank_table.shape[1];
    const size_t num_places = r.expert_rank_table.shape[2];
    const size_t row = static_cast<size_t>(r.layer_id) * num_experts + expert;
    Replicas replicas{static_cast<const int32_t*>(r.expert_rank_table.data) + row * num_places * 2};
    while (replicas.count < num_places && replicas.rank(replicas.count) >= 0) ++replicas.count;
    return replicas;
}

// K1, or K and the nearest legal S.
size_t slots_of_token(const TwoPhaseRouting& r) {
    // Sizes of workspaces are asked for before the request is judged, so they must hold for any
    // value.
    const auto num_shared = std::clamp<int64_t>(r.shared_expert_num, 0, kSharedExpertsMax);
    return r.expert_ids.shape[1] + static_cast<size_t>(num_shared);
}

// "" if the replica is a place of its own, else what is wrong.
std::string fault_of(const TwoPhaseRouting& r,
                     int32_t rank,
                     int32_t local_id,
                     std::span<uint8_t> held) {
    if (rank >= r.num_ranks) {
        return fmt::format("the rank must be below num_ranks, {}", r.num_ranks);
    }
    if (local_id < 0 || local_id >= r.num_local_experts) {
        return fmt::format("the local id must be 0 to {}", r.num_local_experts - 1);
    }
    const int64_t key = rank * r.num_local_experts + local_id;
    // Two experts in one place would mix their rows.
    if (held[static_cast<size_t>(key)]++ != 0) return "this place is given twice";
    return "";
}

}  // namespace

void check_two_phase_routing(OperatorCheck& check, const TwoPhaseRouting& r) {
    check.attributes();
    check.tensor("expert_ids");
    check.tensor("expert_rank_table");
    const auto& table = r.expert_rank_table;
    const size_t num_layers = table.rank == 4 ? table.shape[0] : 0;
    const size_t num_experts = table.rank == 4 ? table.shape[1] : 0;
    if (table.rank == 4) {
        check.require(r.layer_id < static_cast<int64_t>(num_layers),
                      "layer_id is {}; expert_rank_table has {} layers",
                      with(r.layer_id, num_layers));
        check.require(r.shared_expert_num <= static_cast<int64_t>(num_experts),
                      "shared_expert_num is {}; expert_rank_table has {} experts a layer",
                      with(r.shared_expert_num, num_experts));
    }
    if (r.expert_ids.rank == 2) {
        const auto num_tokens = static_cast<int64_t>(r.expert_ids.shape[0]);
        const auto num_slots = static_cast<int64_t>(slots_of_token(r));
        // Tokens without slots are gone through, too.
        check.require(num_tokens <= INT32_MAX / std::max<int64_t>(num_slots, 1),
                      "expert_ids has {} tokens of {} slots, shared experts included; at most "
                      "2147483647 of both are allowed",
                      with(num_tokens, num_slots));
    }
}

Result<> check_two_phase_table(const OperatorSpec& spec,
                               const TwoPhaseRouting& r,
                               std::span<uint8_t> held) {
    std::fill(held.begin(), held.end(), uint8_t{0});
    OperatorCheck check(spec);
    for (size_t expert = 0; expert < r.expert_rank_table.shape[1]; ++expert) {
        const Replicas replicas = replicas_of(r, expert);
        if (replicas.count == 0) {
            check.require(
                false, "expert_rank_table[{}, {}] has no replica", with(r.layer_id, expert));
        }
        for (size_t i = 0; i < replicas.count; ++i) {
            const int32_t rank = replicas.rank(i);
            const int32_t local_id = replicas.local_id(i);
            const std::string fault = fault_of(r, rank, local_id, held);
            if (fault.empty()) continue;
            check.require(false,
                          "expert_rank_table[{}, {}, {}] is ({}, {}); {}",
                          with(r.layer_id, expert, i, rank, local_id, fault));
        }
    }
    return check.finish();
}

size_t two_phase_num_keys(const TwoPhaseRouting& r) {
    const auto legal = [](int64_t value, int64_t most) {
        return static_cast<size_t>(std::clamp<int64_t>(value, 1, most));
    };
    // Clamped for the same reason as the slots above.
    return legal(r.num_ranks, two_phase::kRanksMax) *
           legal(r.num_local_experts, two_phase::kLocalExpertsMax);
}

size_t two_phase_num_experts(const TwoPhaseRouting& r) {
    return r.expert_rank_table.rank == 4 ? r.expert_rank_table.shape[1] : 0;
}

size_t two_phase_block_slots(const TwoPhaseRouting& r) {
    if (r.expert_ids.rank != 2) return 0;
    const auto block_size = static_cast<size_t>(std::max<int64_t>(r.block_size, 1));
    return std::min(r.expert_ids.shape[0], block_size) * slots_of_token(r);
}

TwoPhaseSlots::TwoPhaseSlots(const TwoPhaseRouting& r, int32_t* key_of_expert)
    : ids_(static_cast<const int32_t*>(r.expert_ids.data)),
      key_of_expert_(key_of_expert),
      num_tokens_(r.expert_ids.shape[0]),
      top_k_(r.expert_ids.shape[1]),
      num_shared_(static_cast<size_t>(r.shared_expert_num)),
      num_experts_(two_phase_num_experts(r)),
      num_routed_(num_experts_ - num_shared_),
      num_local_experts_(static_cast<size_t>(r.num_local_experts)),
      num_keys_(two_phase_num_keys(r)),
      block_size_(static_cast<size_t>(r.block_size)) {
    // Once for each expert and not for each slot: payload and combine look up every slot again.
    for (size_t expert = 0; expert < num_experts_; ++expert) {
        const Replicas replicas = replicas_of(r, expert);
        const size_t i = r.choose_replica == nullptr
                             ? static_cast<size_t>(r.session_id) % replicas.count
                             : r.choose_replica(r.session_id, replicas.count);
        AFD_ASSERT(i < replicas.count, "replica %zu of %zu was chosen", i, replicas.count);
        key_of_expert[expert] =
            replicas.rank(i) * static_cast<int32_t>(r.num_local_experts) + replicas.local_id(i);
    }
}

}  // namespace afd::ops
