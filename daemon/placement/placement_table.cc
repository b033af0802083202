// SPDX-License-Identifier: Apache-2.0
#include "daemon/placement/placement_table.h"

#include <algorithm>
#include <vector>

namespace afd::daemon {

control::ExpertTable to_wire(const schedule::ExpertPlacement& placement) {
    control::ExpertTable table;
    for (uint32_t layer = 0; layer < placement.num_layers(); ++layer) {
        for (uint32_t expert = 0; expert < placement.num_experts(layer); ++expert) {
            const auto replicas = placement.replicas(layer, expert);
            table.add_num_replicas(static_cast<uint32_t>(replicas.size()));
            for (const schedule::ExpertReplica& replica : replicas) table.add_ranks(replica.rank);
        }
    }
    table.mutable_choices()->Add(placement.choices().begin(), placement.choices().end());
    return table;
}

Result<schedule::ExpertPlacement> placement_of(const control::Welcome& welcome,
                                               std::span<const schedule::LayerExperts> layers,
                                               uint32_t num_ranks) {
    if (!welcome.has_experts()) return schedule::ExpertPlacement::round_robin(layers, num_ranks);
    const control::ExpertTable& table = welcome.experts();
    const Error broken{Code::kDataLoss, "afdd sent a table of experts that is not of this model"};
    std::vector<std::vector<std::vector<uint32_t>>> ranks(layers.size());  // [layer][expert]
    int next_expert = 0;
    int next_rank = 0;
    for (size_t layer = 0; layer < layers.size(); ++layer) {
        for (uint32_t expert = 0; expert < layers[layer].num_experts(); ++expert) {
            if (next_expert >= table.num_replicas_size()) return broken;
            const uint32_t count = table.num_replicas(next_expert++);
            // next_rank never passes the size, so the difference is not negative.
            if (count > static_cast<uint32_t>(table.ranks_size() - next_rank)) return broken;
            const auto first = table.ranks().begin() + next_rank;
            ranks[layer].emplace_back(first, first + count);
            next_rank += static_cast<int>(count);
        }
    }
    if (next_expert != table.num_replicas_size() || next_rank != table.ranks_size()) return broken;
    AFD_ASSIGN(schedule::ExpertPlacement placement,
               schedule::ExpertPlacement::from_ranks(ranks, num_ranks));
    if (table.choices_size() > 0) {
        std::vector<uint16_t> choices;
        for (const uint32_t choice : table.choices()) {
            choices.push_back(static_cast<uint16_t>(std::min<uint32_t>(choice, UINT16_MAX)));
        }
        AFD_TRY(placement.set_choices(std::move(choices)));
    }
    return placement;
}

}  // namespace afd::daemon
