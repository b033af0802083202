// SPDX-License-Identifier: Apache-2.0
#include "daemon/placement/host_placement.h"

#include <algorithm>
#include <set>
#include <utility>

namespace afd::daemon {
namespace {

// In turn from `start` on: the first rank of a host that is not `used`, else the first that is not
// one of `chosen`.
uint32_t next_rank(uint32_t start,
                   const std::vector<uint32_t>& chosen,
                   const std::set<std::string>& used,
                   std::span<const std::string> hosts) {
    const auto num_ranks = static_cast<uint32_t>(hosts.size());
    uint32_t other = num_ranks;
    for (uint32_t i = 0; i < num_ranks; ++i) {
        const uint32_t rank = (start + i) % num_ranks;
        if (std::find(chosen.begin(), chosen.end(), rank) != chosen.end()) continue;
        if (!used.contains(hosts[rank])) return rank;
        if (other == num_ranks) other = rank;
    }
    return other;
}

}  // namespace

std::vector<std::vector<uint32_t>> spread_replicas(uint32_t num_experts,
                                                   uint32_t num_replicas,
                                                   std::span<const std::string> hosts) {
    const auto num_ranks = static_cast<uint32_t>(hosts.size());
    std::vector<std::vector<uint32_t>> ranks(num_experts);
    for (uint32_t expert = 0; expert < num_experts; ++expert) {
        std::vector<uint32_t>& chosen = ranks[expert];
        chosen.push_back(expert % num_ranks);
        std::set<std::string> used = {hosts[chosen.front()]};
        while (chosen.size() < num_replicas) {
            // Another distance in each turn of the round robin.
            const uint32_t turn = expert / num_ranks + static_cast<uint32_t>(chosen.size()) - 1;
            const uint32_t distance = 1 + turn % (num_ranks - 1);
            chosen.push_back(next_rank(chosen.front() + distance, chosen, used, hosts));
            used.insert(hosts[chosen.back()]);
        }
    }
    return ranks;
}

Result<> choose_near_replicas(std::span<const std::string> session_hosts,
                              std::span<const std::string> rank_hosts,
                              schedule::ExpertPlacement& placement) {
    std::vector<uint16_t> choices;
    std::vector<uint16_t> near;
    for (size_t session = 0; session < session_hosts.size(); ++session) {
        for (uint32_t layer = 0; layer < placement.num_layers(); ++layer) {
            for (uint32_t expert = 0; expert < placement.num_experts(layer); ++expert) {
                const auto replicas = placement.replicas(layer, expert);
                near.clear();
                for (uint16_t i = 0; i < replicas.size(); ++i) {
                    if (rank_hosts[replicas[i].rank] == session_hosts[session]) near.push_back(i);
                }
                choices.push_back(near.empty() ? static_cast<uint16_t>(session % replicas.size())
                                               : near[session % near.size()]);
            }
        }
    }
    return placement.set_choices(std::move(choices));
}

}  // namespace afd::daemon
