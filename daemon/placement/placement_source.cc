// SPDX-License-Identifier: Apache-2.0
#include "daemon/placement/placement_source.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "daemon/placement/host_placement.h"
#include "daemon/placement/host_plan.h"
#include "daemon/placement/plugin_questions.h"
#include "daemon/program/logging.h"
#include "proto/did_you_mean.h"
#include "proto/failure.h"
#include "proto/typed_number.h"
#include "schedule/plugin/plugin_library.h"

namespace afd::daemon {
namespace {

using Ranks = ExpertRanks;

std::vector<uint32_t> all_ranks(uint32_t num_ranks) {
    std::vector<uint32_t> ranks(num_ranks);
    for (uint32_t rank = 0; rank < num_ranks; ++rank) ranks[rank] = rank;
    return ranks;
}

// A key that nobody reads is a mistake, and would put experts elsewhere than its author thinks.
Result<> check_keys(const nlohmann::json& document, const std::string& name) {
    const std::string known[] = {"experts", "layers"};
    for (const auto& entry : document.items()) {
        const std::string& key = entry.key();
        if (key == known[0] || key == known[1]) continue;
        return invalid_argument("{}: unknown key '{}'{}; there are \"experts\" and \"layers\"",
                                with(name, key, did_you_mean(key, known)));
    }
    return {};
}

// The ranks of one layer's routed experts. nlohmann throws nothing here: every type is asked first.
Result<std::vector<std::vector<uint32_t>>> read_layer(const nlohmann::json& list,
                                                      const std::string& where,
                                                      uint32_t num_routed) {
    if (!list.is_array() || list.size() != num_routed) {
        return Error{Code::kInvalidArgument,
                     where + ": must be a list with the ranks of each of " +
                         std::to_string(num_routed) + " routed experts"};
    }
    std::vector<std::vector<uint32_t>> experts;
    for (const nlohmann::json& ranks : list) {
        std::vector<uint32_t>& expert = experts.emplace_back();
        const std::string at = where + ", expert " + std::to_string(experts.size() - 1);
        if (!ranks.is_array()) {
            return Error{Code::kInvalidArgument, at + ": must be a list of ranks"};
        }
        for (const nlohmann::json& rank : ranks) {
            if (!rank.is_number_unsigned() || rank.get<uint64_t>() > UINT32_MAX) {
                return Error{Code::kInvalidArgument, at + ": a rank must be a number from 0 on"};
            }
            expert.push_back(rank.get<uint32_t>());
        }
    }
    return experts;
}

// Exceptions that are of no layer would be left out without a word, and the experts be elsewhere
// than their author thinks.
Result<> check_exceptions(const nlohmann::json& exceptions,
                          const std::string& name,
                          std::span<const schedule::LayerExperts> layers) {
    if (!exceptions.is_object()) {
        return Error{Code::kInvalidArgument,
                     name + ", \"layers\": must be an object: {\"3\": [...]}"};
    }
    for (const auto& entry : exceptions.items()) {
        const std::string& key = entry.key();
        const auto layer = whole_number(key);
        const bool is_number = layer && std::to_string(*layer) == key;
        if (is_number && *layer < layers.size() && layers[*layer].num_routed > 0) continue;
        return Error{Code::kInvalidArgument,
                     fmt::format("{}, \"layers\": '{}' is no layer with routed experts; write its "
                                 "number, below {}",
                                 name,
                                 key,
                                 layers.size())};
    }
    return {};
}

Result<Ranks> read_file(const std::string& path,
                        std::span<const schedule::LayerExperts> layers,
                        uint32_t num_ranks) {
    std::ifstream file(path);
    if (!file) {
        return Error{Code::kNotFound, "expert_placement: the file '" + path + "' cannot be read"};
    }
    const nlohmann::json document = nlohmann::json::parse(file, nullptr, false);
    const std::string name = "expert_placement '" + path + "'";
    if (!document.is_object() || !document.contains("experts")) {
        return Error{Code::kInvalidArgument, name + ": must be a JSON object with \"experts\""};
    }
    AFD_TRY(check_keys(document, name));
    const nlohmann::json exceptions = document.value("layers", nlohmann::json::object());
    AFD_TRY(check_exceptions(exceptions, name, layers));
    Ranks ranks(layers.size());
    for (size_t layer = 0; layer < layers.size(); ++layer) {
        if (layers[layer].num_routed > 0) {
            const std::string key = std::to_string(layer);
            const bool is_exception = exceptions.contains(key);
            const std::string where =
                name + (is_exception ? ", layer " + key : std::string(", \"experts\""));
            AFD_ASSIGN(ranks[layer],
                       read_layer(is_exception ? exceptions[key] : document["experts"],
                                  where,
                                  layers[layer].num_routed));
        }
        // Shared experts and dense layers are on every rank, whatever the file says of the routed
        // ones.
        ranks[layer].resize(layers[layer].num_experts(), all_ranks(num_ranks));
    }
    return ranks;
}

std::vector<std::string> hosts_of(const Config& config, control::Role role, uint32_t num_workers) {
    const HostPlan plan(config);
    std::vector<std::string> hosts;
    for (uint32_t index = 0; index < num_workers; ++index) {
        hosts.push_back(plan.host_of(role, index));
    }
    return hosts;
}

// "replicas:N".
Result<Ranks> spread_over_hosts(const Config& config,
                                std::span<const schedule::LayerExperts> layers) {
    const uint32_t num_ranks = config.num_ffn_workers();
    const uint32_t num_replicas = replicas_of(config.expert_placement);
    if (num_replicas > num_ranks) {
        return invalid_argument(
            "expert_placement = '{}': each expert is to be on {} FFN workers, and there are {}: "
            "ffn_workers must be at least as many",
            with(config.expert_placement, num_replicas, num_ranks));
    }
    const std::vector<std::string> hosts = hosts_of(config, control::FFN, num_ranks);
    Ranks ranks;
    for (const auto& layer : layers) {
        auto& experts = ranks.emplace_back(spread_replicas(layer.num_routed, num_replicas, hosts));
        experts.resize(layer.num_experts(), all_ranks(num_ranks));
    }
    return ranks;
}

bool holds_routed(const schedule::ExpertPlacement& placement,
                  std::span<const schedule::LayerExperts> layers,
                  uint32_t rank) {
    const auto held = placement.held_experts(rank);
    return std::any_of(held.begin(), held.end(), [&](const schedule::HeldExpert& expert) {
        return expert.expert < layers[expert.layer_id].num_routed;
    });
}

// A worker without routed experts takes cores and memory, and has next to nothing to do.
Result<> check_no_rank_is_empty(const Config& config,
                                const schedule::ExpertPlacement& placement,
                                std::span<const schedule::LayerExperts> layers) {
    uint32_t num_routed = 0;
    for (const auto& layer : layers) num_routed = std::max(num_routed, layer.num_routed);
    // Without MoE layers all that there is is on every rank.
    if (num_routed == 0) return {};
    uint32_t num_empty = 0;
    for (uint32_t rank = 0; rank < placement.num_ranks(); ++rank) {
        num_empty += holds_routed(placement, layers, rank) ? 0 : 1;
    }
    if (num_empty == 0) return {};
    if (config.expert_placement == "round_robin") {
        return invalid_argument(
            "ffn_workers = {}: must be at most {}, the routed experts of a layer: expert_placement "
            "= 'round_robin' holds each once, so {} workers would hold none; an expert_placement "
            "with replicas can use more workers",
            with(placement.num_ranks(), num_routed, num_empty));
    }
    log::warn("expert_placement '{}': {} of {} FFN workers hold no routed expert",
              config.expert_placement,
              num_empty,
              placement.num_ranks());
    return {};
}

}  // namespace

uint32_t replicas_of(std::string_view expert_placement) {
    constexpr std::string_view kPrefix = "replicas:";
    if (!expert_placement.starts_with(kPrefix)) return 0;
    const uint64_t count = whole_number(expert_placement.substr(kPrefix.size())).value_or(0);
    return count <= UINT32_MAX ? static_cast<uint32_t>(count) : 0;
}

Result<schedule::ExpertPlacement> plan_placement(const Config& config,
                                                 std::span<const schedule::LayerExperts> layers) {
    const uint32_t num_ranks = config.num_ffn_workers();
    const auto place = [&]() -> Result<schedule::ExpertPlacement> {
        if (config.expert_placement == "round_robin") {
            return schedule::ExpertPlacement::round_robin(layers, num_ranks);
        }
        if (replicas_of(config.expert_placement) > 0) {
            AFD_ASSIGN(const Ranks ranks, spread_over_hosts(config, layers));
            return schedule::ExpertPlacement::from_ranks(ranks, num_ranks);
        }
        AFD_ASSIGN(const Ranks ranks,
                   schedule::names_plugin(config.expert_placement)
                       ? ask_placement(config.expert_placement, layers, num_ranks)
                       : read_file(config.expert_placement, layers, num_ranks));
        return schedule::ExpertPlacement::from_ranks(ranks, num_ranks);
    };
    AFD_ASSIGN(schedule::ExpertPlacement placement, place());
    AFD_TRY(check_no_rank_is_empty(config, placement, layers));
    if (config.replica_choice == "host") {
        AFD_TRY(choose_near_replicas(
            hosts_of(config, control::ATTENTION, config.num_attention_workers()),
            hosts_of(config, control::FFN, num_ranks),
            placement));
    } else if (config.replica_choice != "session") {
        AFD_ASSIGN(
            std::vector<uint16_t> choices,
            ask_replica_choices(config.replica_choice, config.num_attention_workers(), placement));
        AFD_TRY(placement.set_choices(std::move(choices)));
    }
    return placement;
}

}  // namespace afd::daemon
