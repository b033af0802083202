// SPDX-License-Identifier: Apache-2.0

#include "bench/experts/many_experts.h"

#include <algorithm>
#include <cstdint>
#include <random>

#include "bench/limits/timing.h"

namespace afd::bench {
namespace {

constexpr size_t kExperts = 64;
constexpr size_t kTokens = 16;
constexpr size_t kTopK = 6;
constexpr size_t kHidden = 2048;
constexpr size_t kIntermediate = 1408;

// Only experts that somebody chose, in ascending order.
std::vector<ops::ExpertGroup> random_groups() {
    std::vector<ops::ExpertGroup> groups(kExperts);
    std::mt19937 engine(3);
    for (size_t token = 0; token < kTokens; ++token) {
        std::vector<size_t> experts(kExperts);
        for (size_t i = 0; i < kExperts; ++i) experts[i] = i;
        std::shuffle(experts.begin(), experts.end(), engine);
        for (size_t k = 0; k < kTopK; ++k) ++groups[experts[k]].count;
    }
    for (size_t i = 0; i < kExperts; ++i) groups[i].key = static_cast<int64_t>(i);
    std::erase_if(groups, [](const ops::ExpertGroup& group) { return group.count == 0; });
    return groups;
}

}  // namespace

std::string ManyExperts::name(ops::WeightFormat format, unsigned num_threads) {
    return std::to_string(kExperts) + " experts, " + std::to_string(kTokens) + " tokens top-" +
           std::to_string(kTopK) + "/" + std::string(ops::name_of(format)) +
           "/threads:" + std::to_string(num_threads);
}

ManyExperts::ManyExperts(ops::WeightFormat format)
    : groups_(random_groups()),
      weights_({kHidden, kIntermediate, format}, kExperts),
      ours_(weights_, kTokens * kTopK, kExperts) {}

ManyExpertsTimes ManyExperts::measure(size_t num_rounds, ops::Parallel& parallel) {
    ManyExpertsTimes times;
    for (size_t round = 0; round <= num_rounds; ++round) {
        const double together = seconds_of([&] { ours_.run(0, groups_, parallel); });
        const double alone = seconds_of([&] {
            size_t first_row = 0;
            for (const ops::ExpertGroup& group : groups_) {
                ours_.run(first_row, {&group, 1}, parallel);
                first_row += static_cast<size_t>(group.count);
            }
        });
        if (round == 0) continue;
        times.milliseconds.push_back(together * 1e3);
        times.of_sum.push_back(together / alone);
    }
    return times;
}

}  // namespace afd::bench
