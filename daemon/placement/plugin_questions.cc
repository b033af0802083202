// SPDX-License-Identifier: Apache-2.0
#include "daemon/placement/plugin_questions.h"

#include <algorithm>
#include <cstring>

#include "daemon/placement/plugin_process.h"
#include "proto/failure.h"
#include "schedule/plugin/plugin_library.h"

namespace afd::daemon {
namespace {

template <typename Number>
std::string bytes_of(const std::vector<Number>& numbers) {
    return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(Number)};
}

template <typename Number>
std::vector<Number> numbers_of(const std::string& bytes) {
    std::vector<Number> numbers(bytes.size() / sizeof(Number));
    std::memcpy(numbers.data(), bytes.data(), numbers.size() * sizeof(Number));
    return numbers;
}

// In the order of layers and experts: how many ranks, and these.
Result<std::vector<uint32_t>> place_experts(const schedule::PluginLibrary& library,
                                            std::span<const schedule::LayerExperts> layers,
                                            uint32_t num_ranks) {
    std::vector<AfdLayer> shown;
    for (const auto& layer : layers) shown.push_back({layer.num_routed, layer.num_replicated});
    std::vector<uint32_t> answers;
    std::vector<uint32_t> ranks(num_ranks);
    for (uint32_t layer = 0; layer < layers.size(); ++layer) {
        for (uint32_t expert = 0; expert < layers[layer].num_experts(); ++expert) {
            const uint32_t count = library.table().place_expert(shown.data(),
                                                                static_cast<uint32_t>(shown.size()),
                                                                num_ranks,
                                                                layer,
                                                                expert,
                                                                ranks.data());
            if (count > num_ranks) {
                return invalid_argument(
                    "the plugin '{}': place_expert returned {} for layer {}, expert {}; at most {}",
                    with(library.path(), count, layer, expert, num_ranks));
            }
            answers.push_back(count);
            answers.insert(answers.end(), ranks.begin(), ranks.begin() + count);
        }
    }
    return answers;
}

std::vector<uint16_t> choose_replicas(const schedule::PluginLibrary& library,
                                      uint32_t num_sessions,
                                      const schedule::ExpertPlacement& placement) {
    std::vector<uint16_t> choices;
    for (uint32_t session = 0; session < num_sessions; ++session) {
        for (uint32_t layer = 0; layer < placement.num_layers(); ++layer) {
            for (uint32_t expert = 0; expert < placement.num_experts(layer); ++expert) {
                const auto count = static_cast<uint32_t>(placement.replicas(layer, expert).size());
                const uint32_t choice =
                    count < 2 ? 0 : library.table().choose_replica(layer, expert, session, count);
                choices.push_back(static_cast<uint16_t>(std::min<uint32_t>(choice, UINT16_MAX)));
            }
        }
    }
    return choices;
}

}  // namespace

Result<ExpertRanks> ask_placement(const std::string& path,
                                  std::span<const schedule::LayerExperts> layers,
                                  uint32_t num_ranks) {
    AFD_ASSIGN(const std::string bytes,
               ask_in_process(path, [&path, layers, num_ranks]() -> Result<std::string> {
                   AFD_ASSIGN(const schedule::PluginLibrary library,
                              schedule::PluginLibrary::open(path));
                   AFD_TRY(library.require_placement());
                   AFD_ASSIGN(const std::vector<uint32_t> answers,
                              place_experts(library, layers, num_ranks));
                   return bytes_of(answers);
               }));
    const std::vector<uint32_t> answers = numbers_of<uint32_t>(bytes);
    ExpertRanks ranks(layers.size());
    size_t next = 0;
    for (size_t layer = 0; layer < layers.size(); ++layer) {
        for (uint32_t expert = 0; expert < layers[layer].num_experts(); ++expert) {
            const size_t left = answers.size() - next;
            // The library ran in the process that wrote this.
            if (left == 0 || answers[next] >= left) {
                return failed_precondition("the plugin '{}' has spoilt its own answer", with(path));
            }
            const auto first = answers.begin() + static_cast<ptrdiff_t>(next) + 1;
            ranks[layer].emplace_back(first, first + answers[next]);
            next += 1 + size_t{answers[next]};
        }
    }
    return ranks;
}

Result<std::vector<uint16_t>> ask_replica_choices(const std::string& path,
                                                  uint32_t num_sessions,
                                                  const schedule::ExpertPlacement& placement) {
    AFD_ASSIGN(const std::string bytes,
               ask_in_process(path, [&path, num_sessions, &placement]() -> Result<std::string> {
                   AFD_ASSIGN(const schedule::PluginLibrary library,
                              schedule::PluginLibrary::open(path));
                   AFD_TRY(library.require_replica_choice());
                   return bytes_of(choose_replicas(library, num_sessions, placement));
               }));
    return numbers_of<uint16_t>(bytes);
}

Result<std::string> ask_scheduler_name(const std::string& path) {
    return ask_in_process(path, [&path]() -> Result<std::string> {
        AFD_ASSIGN(const schedule::PluginLibrary library, schedule::PluginLibrary::open(path));
        AFD_TRY(library.require_scheduler());
        return std::string(library.table().name);
    });
}

}  // namespace afd::daemon
