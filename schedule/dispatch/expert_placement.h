// SPDX-License-Identifier: Apache-2.0
#pragma once

// ExpertPlacement: which FFN ranks hold which expert of which layer, and under which local id.
//
// Logical experts of a layer: routed 0 ... E-1, shared E ... E+S-1; a dense layer has the single
// expert 0. A local id counts within one rank and layer; the key of an expert on its rank is
// layer * num_local_experts_per_layer(rank) + local id. Immutable, so it may be shared by threads
// and is pinned for a round by being the same object.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "proto/status.h"

namespace afd::schedule {

struct ExpertReplica {
    uint32_t rank = 0;
    int32_t local_id = 0;

    friend bool operator==(const ExpertReplica&, const ExpertReplica&) = default;
};

// One expert that a rank holds.
struct HeldExpert {
    uint32_t layer_id = 0;
    uint32_t expert = 0;  // Logical.
    int32_t local_id = 0;
};

// What a layer asks of a placement.
struct LayerExperts {
    uint32_t num_routed = 0;      // E; a dense layer has 0 routed and 1 replicated expert.
    uint32_t num_replicated = 0;  // S: shared experts, or 1 for a dense layer.

    uint32_t num_experts() const { return num_routed + num_replicated; }
};

class ExpertPlacement {
  public:
    // Routed expert e goes to rank e % F as local id e / F. Replicated experts are on every rank,
    // behind the largest number of routed experts of any rank in that layer.
    // Errors: kInvalidArgument if there is no layer, no rank, or a layer without experts.
    static Result<ExpertPlacement> round_robin(std::span<const LayerExperts> layers,
                                               uint32_t num_ranks);

    // The ranks that hold each expert: ranks[layer][expert]. Local ids follow the order of the
    // experts on each rank and layer. Errors: as from_table; a rank given twice.
    static Result<ExpertPlacement> from_ranks(
        const std::vector<std::vector<std::vector<uint32_t>>>& ranks, uint32_t num_ranks);

    // An arbitrary table: replicas[layer][expert] lists at least one replica.
    // Errors: kInvalidArgument: no layer or no rank; a layer without experts; or, naming layer and
    // expert, a missing replica, a rank outside [0, num_ranks), a local id outside [0, 65535], or
    // one given twice on a rank and layer.
    static Result<ExpertPlacement> from_table(
        const std::vector<std::vector<std::vector<ExpertReplica>>>& replicas, uint32_t num_ranks);

    uint32_t num_layers() const { return static_cast<uint32_t>(layer_begin_.size()) - 1; }
    uint32_t num_ranks() const { return static_cast<uint32_t>(num_local_.size()); }
    // Logical experts of a layer.
    uint32_t num_experts(uint32_t layer_id) const;

    // REQUIRES: layer_id < num_layers(), expert < num_experts(layer_id).
    std::span<const ExpertReplica> replicas(uint32_t layer_id, uint32_t expert) const;

    // Which replica a session uses, in place of session % number of replicas: choices[(session -
    // first_session) * num_all_experts() + expert, counted through the layers]. Who asks for one
    // session alone needs its row only.
    // Errors: kInvalidArgument: a wrong length, or no such replica.
    Result<> set_choices(std::vector<uint16_t> choices, uint32_t first_session = 0);
    // Empty: session % number of replicas.
    std::span<const uint16_t> choices() const { return choices_; }
    // Those of one session; empty as above. REQUIRES: it has a row.
    std::span<const uint16_t> choices_of(uint32_t session) const;
    // Experts of all layers.
    uint32_t num_all_experts() const { return layer_begin_.back(); }

    // The replica that a session uses. REQUIRES: it has a row, if there are choices.
    ExpertReplica choose(uint32_t layer_id, uint32_t expert, uint32_t session) const {
        const std::span<const ExpertReplica> all = replicas(layer_id, expert);
        if (all.size() == 1) return all[0];
        if (choices_.empty()) return all[session % all.size()];
        const size_t row = size_t{session - first_session_} * num_all_experts();
        return all[choices_[row + layer_begin_[layer_id] + expert]];
    }

    // The replica that a session uses where not all will do: its own if that does, or else the
    // first one that does. Nothing: there is none.
    template <typename WillDo>
    std::optional<ExpertReplica> choose_where(uint32_t layer_id,
                                              uint32_t expert,
                                              uint32_t session,
                                              const WillDo& will_do) const {
        const ExpertReplica own = choose(layer_id, expert, session);
        if (will_do(own)) return own;
        const std::span<const ExpertReplica> all = replicas(layer_id, expert);
        const auto other = std::find_if(all.begin(), all.end(), will_do);
        return other == all.end() ? std::nullopt : std::optional(*other);
    }

    // Whether every expert has a replica on a rank that is not lost. Shape: is_lost [num_ranks()].
    bool is_whole_without(const std::vector<bool>& is_lost) const;

    // Local ids of a rank are below this in every layer; at least 1.
    uint32_t num_local_experts_per_layer(uint32_t rank) const;

    // The largest of all ranks.
    uint32_t num_local_experts_max() const;

    // Whether the rank holds an expert under this id; false for every value out of range.
    bool holds(uint32_t rank, int32_t layer_id, int32_t local_id) const;

    // Everything that a rank must load, ascending by layer and local id.
    std::vector<HeldExpert> held_experts(uint32_t rank) const;

  private:
    Result<> index_held();

    std::vector<uint32_t> layer_begin_;    // [L + 1]: index of a layer's expert 0 below.
    std::vector<uint32_t> replica_begin_;  // [experts + 1]: index into replicas_.
    std::vector<ExpertReplica> replicas_;
    std::vector<uint16_t> choices_;            // Empty: session % number of replicas.
    uint32_t first_session_ = 0;               // Whose row is the first of them.
    std::vector<uint32_t> num_local_;          // [rank]
    std::vector<std::vector<uint8_t>> holds_;  // [rank][layer * num_local + local_id]
};

}  // namespace afd::schedule
