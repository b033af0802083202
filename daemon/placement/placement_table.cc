// SPDX-License-Identifier: Apache-2.0
#include "daemon/placement/placement_table.h"

#include <algorithm>
#include <vector>

#include "proto/failure.h"
#include "proto/frame.h"

namespace afd::daemon {

namespace {

// What else a Welcome says, with the places of the largest instance.
constexpr size_t kOtherBytesMax = size_t{1} << 20;

control::ExpertTable without_choices(const schedule::ExpertPlacement& placement) {
    control::ExpertTable table;
    for (uint32_t layer = 0; layer < placement.num_layers(); ++layer) {
        for (uint32_t expert = 0; expert < placement.num_experts(layer); ++expert) {
            const auto replicas = placement.replicas(layer, expert);
            table.add_num_replicas(static_cast<uint32_t>(replicas.size()));
            for (const schedule::ExpertReplica& replica : replicas) table.add_ranks(replica.rank);
        }
    }
    return table;
}

// The bytes of the choices as packed varints.
size_t varint_bytes(std::span<const uint16_t> choices) {
    constexpr uint16_t kOneByteMax = 127;
    constexpr uint16_t kTwoBytesMax = 16383;
    size_t bytes = choices.size();
    for (const uint16_t choice : choices) {
        bytes += (choice > kOneByteMax ? 1U : 0U) + (choice > kTwoBytesMax ? 1U : 0U);
    }
    return bytes;
}

}  // namespace

control::ExpertTable to_wire(const schedule::ExpertPlacement& placement,
                             schedule::RouterPlacement router,
                             control::Role role,
                             uint32_t index) {
    control::ExpertTable table = without_choices(placement);
    if (role == control::ATTENTION) {
        const auto choices = placement.choices_of(index);
        table.mutable_choices()->Add(choices.begin(), choices.end());
        table.set_first_session(index);
    } else if (router == schedule::RouterPlacement::kFfn) {
        table.mutable_choices()->Add(placement.choices().begin(), placement.choices().end());
    }
    return table;
}

Result<> check_table_bytes(const schedule::ExpertPlacement& placement,
                           schedule::RouterPlacement router) {
    constexpr size_t kBytesMax = kFrameBytesMax - kOtherBytesMax;
    const size_t ranks_bytes = without_choices(placement).ByteSizeLong();
    // A row is no longer than that: each expert has two bytes and more in both.
    if (ranks_bytes > kBytesMax / 2) {
        return invalid_argument(
            "expert_placement: the table of experts and ranks has {} bytes, and a worker can be "
            "told {}: give each expert fewer replicas",
            with(ranks_bytes, kBytesMax / 2));
    }
    if (router != schedule::RouterPlacement::kFfn) return {};
    const size_t all_bytes = ranks_bytes + varint_bytes(placement.choices());
    if (all_bytes <= kBytesMax) return {};
    return invalid_argument(
        "replica_choice: with router = 'ffn', each FFN worker is told the choices of all attention "
        "workers, {} bytes, and can be told {}: use fewer attention workers, router = 'attention' "
        "or replica_choice = 'session'",
        with(all_bytes, kBytesMax));
}

Result<schedule::ExpertPlacement> placement_of(const control::Welcome& welcome,
                                               std::span<const schedule::LayerExperts> layers,
                                               uint32_t num_ranks,
                                               SessionRange sessions) {
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
        const uint64_t begin = table.first_session();
        const uint64_t end =
            begin + static_cast<uint64_t>(table.choices_size()) / placement.num_all_experts();
        if (sessions.first < begin || uint64_t{sessions.first} + sessions.count > end) {
            return broken;
        }
        std::vector<uint16_t> choices;
        for (const uint32_t choice : table.choices()) {
            choices.push_back(static_cast<uint16_t>(std::min<uint32_t>(choice, UINT16_MAX)));
        }
        AFD_TRY(placement.set_choices(std::move(choices), table.first_session()));
    }
    return placement;
}

}  // namespace afd::daemon
