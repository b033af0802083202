// SPDX-License-Identifier: Apache-2.0
#include "schedule/dispatch/expert_placement.h"

#include <algorithm>
#include <string>

#include "proto/failure.h"

namespace afd::schedule {
namespace {

using Table = std::vector<std::vector<std::vector<ExpertReplica>>>;

// Bounds the table of held ids; far above the experts of any layer.
constexpr int32_t kLocalIdMax = 65535;

template <typename... Values>
Error bad_replica(size_t layer,
                  size_t expert,
                  Text<Values...> what,
                  const With<Values...>& values = {}) {
    return invalid_argument("expert placement: layer {}, expert {}: {}",
                            with(layer, expert, fmt::vformat(what, values)));
}

Result<> check_replicas(const std::vector<ExpertReplica>& replicas,
                        size_t layer,
                        size_t expert,
                        uint32_t num_ranks) {
    if (replicas.empty()) return bad_replica(layer, expert, "no rank holds it");
    for (const ExpertReplica& replica : replicas) {
        if (replica.rank >= num_ranks) {
            return bad_replica(
                layer, expert, "rank {} is not below {}", with(replica.rank, num_ranks));
        }
        if (replica.local_id < 0 || replica.local_id > kLocalIdMax) {
            return bad_replica(layer,
                               expert,
                               "local id {} is not in 0 to {}",
                               with(replica.local_id, kLocalIdMax));
        }
    }
    return {};
}

}  // namespace

Result<ExpertPlacement> ExpertPlacement::round_robin(std::span<const LayerExperts> layers,
                                                     uint32_t num_ranks) {
    Table table(layers.size());
    for (size_t layer = 0; layer < layers.size() && num_ranks > 0; ++layer) {
        const LayerExperts& experts = layers[layer];
        if (experts.num_experts() == 0) return bad_replica(layer, 0, "the layer has no expert");
        // Local ids of replicated experts begin behind the largest share of any rank, so that such
        // an expert has the same local id everywhere.
        const uint32_t num_routed_max = (experts.num_routed + num_ranks - 1) / num_ranks;
        for (uint32_t e = 0; e < experts.num_routed; ++e) {
            table[layer].push_back({{e % num_ranks, static_cast<int32_t>(e / num_ranks)}});
        }
        for (uint32_t s = 0; s < experts.num_replicated; ++s) {
            std::vector<ExpertReplica>& replicas = table[layer].emplace_back();
            for (uint32_t rank = 0; rank < num_ranks; ++rank) {
                replicas.push_back({rank, static_cast<int32_t>(num_routed_max + s)});
            }
        }
    }
    return from_table(table, num_ranks);
}

Result<ExpertPlacement> ExpertPlacement::from_ranks(
    const std::vector<std::vector<std::vector<uint32_t>>>& ranks, uint32_t num_ranks) {
    Table table(ranks.size());
    for (size_t layer = 0; layer < ranks.size(); ++layer) {
        std::vector<int32_t> next_local_id(num_ranks, 0);
        for (size_t expert = 0; expert < ranks[layer].size(); ++expert) {
            std::vector<ExpertReplica>& replicas = table[layer].emplace_back();
            for (const uint32_t rank : ranks[layer][expert]) {
                const auto holds_already = [&](const auto& other) { return other.rank == rank; };
                if (std::any_of(replicas.begin(), replicas.end(), holds_already)) {
                    return bad_replica(layer, expert, "rank {} is given twice", with(rank));
                }
                // A rank out of range is refused below.
                replicas.push_back({rank, rank < num_ranks ? next_local_id[rank]++ : 0});
            }
        }
    }
    return from_table(table, num_ranks);
}

Result<> ExpertPlacement::set_choices(std::vector<uint16_t> choices, uint32_t first_session) {
    if (choices.empty() || choices.size() % num_all_experts() != 0) {
        return invalid_argument("replica choice: {} choices for {} experts of each session",
                                with(choices.size(), num_all_experts()));
    }
    for (size_t i = 0; i < choices.size(); ++i) {
        const size_t expert = i % num_all_experts();
        const uint32_t num_replicas = replica_begin_[expert + 1] - replica_begin_[expert];
        if (choices[i] < num_replicas) continue;
        return invalid_argument(
            "replica choice: session {} chooses replica {} of {} of expert {}, counted through the "
            "layers",
            with(first_session + i / num_all_experts(), choices[i], num_replicas, expert));
    }
    choices_ = std::move(choices);
    first_session_ = first_session;
    return {};
}

std::span<const uint16_t> ExpertPlacement::choices_of(uint32_t session) const {
    if (choices_.empty()) return {};
    const size_t row = session - first_session_;
    AFD_ASSERT(session >= first_session_ && row < choices_.size() / num_all_experts(),
               "session %u of %zu from %u on",
               session,
               choices_.size() / num_all_experts(),
               first_session_);
    return choices().subspan(row * num_all_experts(), num_all_experts());
}

Result<ExpertPlacement> ExpertPlacement::from_table(const Table& replicas, uint32_t num_ranks) {
    if (replicas.empty() || num_ranks == 0) {
        return invalid_argument(
            "expert placement: {} layers on {} ranks; at least 1 of each is needed",
            with(replicas.size(), num_ranks));
    }
    ExpertPlacement placement;
    // At least 1, also for a rank that holds nothing: it is a divisor of keys.
    placement.num_local_.assign(num_ranks, 1);
    for (size_t layer = 0; layer < replicas.size(); ++layer) {
        placement.layer_begin_.push_back(static_cast<uint32_t>(placement.replica_begin_.size()));
        if (replicas[layer].empty()) return bad_replica(layer, 0, "the layer has no expert");
        for (size_t expert = 0; expert < replicas[layer].size(); ++expert) {
            AFD_TRY(check_replicas(replicas[layer][expert], layer, expert, num_ranks));
            placement.replica_begin_.push_back(static_cast<uint32_t>(placement.replicas_.size()));
            for (const ExpertReplica& replica : replicas[layer][expert]) {
                placement.replicas_.push_back(replica);
                uint32_t& num_local = placement.num_local_[replica.rank];
                // One bound for all layers, so that key = layer · num_local + id is a single
                // product.
                num_local = std::max(num_local, static_cast<uint32_t>(replica.local_id) + 1);
            }
        }
    }
    placement.layer_begin_.push_back(static_cast<uint32_t>(placement.replica_begin_.size()));
    placement.replica_begin_.push_back(static_cast<uint32_t>(placement.replicas_.size()));
    AFD_TRY(placement.index_held());
    return placement;
}

Result<> ExpertPlacement::index_held() {
    for (const uint32_t num_local : num_local_) {
        holds_.emplace_back(size_t{num_layers()} * num_local, uint8_t{0});
    }
    for (uint32_t layer = 0; layer < num_layers(); ++layer) {
        for (uint32_t expert = 0; expert < num_experts(layer); ++expert) {
            for (const ExpertReplica& replica : replicas(layer, expert)) {
                // A table of bytes instead of a set: ReadyScan asks it for every id of every
                // descriptor.
                uint8_t& held = holds_[replica.rank][size_t{layer} * num_local_[replica.rank] +
                                                     static_cast<size_t>(replica.local_id)];
                if (held != 0) {
                    return bad_replica(layer,
                                       expert,
                                       "local id {} of rank {} is given twice",
                                       with(replica.local_id, replica.rank));
                }
                held = 1;
            }
        }
    }
    return {};
}

uint32_t ExpertPlacement::num_experts(uint32_t layer_id) const {
    AFD_ASSERT(layer_id < num_layers(), "layer %u of %u", layer_id, num_layers());
    return layer_begin_[layer_id + 1] - layer_begin_[layer_id];
}

std::span<const ExpertReplica> ExpertPlacement::replicas(uint32_t layer_id, uint32_t expert) const {
    AFD_ASSERT(expert < num_experts(layer_id),
               "expert %u of %u in layer %u",
               expert,
               num_experts(layer_id),
               layer_id);
    const uint32_t index = layer_begin_[layer_id] + expert;
    const uint32_t begin = replica_begin_[index];
    return {replicas_.data() + begin, replica_begin_[index + 1] - begin};
}

bool ExpertPlacement::is_whole_without(const std::vector<bool>& is_lost) const {
    for (size_t expert = 0; expert < num_all_experts(); ++expert) {
        const auto begin = replicas_.begin() + replica_begin_[expert];
        const auto end = replicas_.begin() + replica_begin_[expert + 1];
        if (std::all_of(begin, end, [&](const auto& replica) { return is_lost[replica.rank]; })) {
            return false;
        }
    }
    return true;
}

uint32_t ExpertPlacement::num_local_experts_per_layer(uint32_t rank) const {
    AFD_ASSERT(rank < num_ranks(), "rank %u of %u", rank, num_ranks());
    return num_local_[rank];
}

uint32_t ExpertPlacement::num_local_experts_max() const {
    return *std::max_element(num_local_.begin(), num_local_.end());
}

bool ExpertPlacement::holds(uint32_t rank, int32_t layer_id, int32_t local_id) const {
    AFD_ASSERT(rank < num_ranks(), "rank %u of %u", rank, num_ranks());
    if (layer_id < 0 || static_cast<uint32_t>(layer_id) >= num_layers()) return false;
    if (local_id < 0 || static_cast<uint32_t>(local_id) >= num_local_[rank]) return false;
    return holds_[rank][static_cast<size_t>(layer_id) * num_local_[rank] +
                        static_cast<size_t>(local_id)] != 0;
}

std::vector<HeldExpert> ExpertPlacement::held_experts(uint32_t rank) const {
    std::vector<HeldExpert> experts;
    for (uint32_t layer = 0; layer < num_layers(); ++layer) {
        for (uint32_t expert = 0; expert < num_experts(layer); ++expert) {
            for (const ExpertReplica& replica : replicas(layer, expert)) {
                if (replica.rank == rank) experts.push_back({layer, expert, replica.local_id});
            }
        }
    }
    std::sort(experts.begin(), experts.end(), [](const HeldExpert& a, const HeldExpert& b) {
        return a.layer_id != b.layer_id ? a.layer_id < b.layer_id : a.local_id < b.local_id;
    });
    return experts;
}

}  // namespace afd::schedule
