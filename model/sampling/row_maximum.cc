// SPDX-License-Identifier: Apache-2.0
#include "model/sampling/row_maximum.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "proto/failure.h"

namespace afd::model {
namespace {

Error bad_logits(std::span<const float> logits) {
    for (size_t id = 0; id < logits.size(); ++id) {
        const bool is_nan = std::isnan(logits[id]);
        if (!is_nan && logits[id] != std::numeric_limits<float>::infinity()) continue;
        return internal("the logit of token {} is {}; the model's weights or activations overflow",
                        with(id, is_nan ? "NaN" : "infinite"));
    }
    return internal(
        "all logits are -infinity; the model's weights or activations overflow, or min_tokens bans "
        "every token");
}

constexpr float kLowest = -std::numeric_limits<float>::infinity();

// The highest logit of some; NaN if one is NaN or +infinity.
float highest_of(std::span<const float> logits) {
    // Lanes, of which GCC 12 makes registers for this many only: with 16 it took four times as
    // long.
    constexpr size_t kLanes = 32;
    std::array<float, kLanes> highest;
    highest.fill(kLowest);
    std::array<uint32_t, kLanes> is_bad{};
    const auto look = [&](size_t lane, float logit) {
        highest[lane] = logit > highest[lane] ? logit : highest[lane];
        is_bad[lane] |= static_cast<uint32_t>(!(logit <= std::numeric_limits<float>::max()));
    };
    size_t i = 0;
    for (; i + kLanes <= logits.size(); i += kLanes) {
        for (size_t lane = 0; lane < kLanes; ++lane) look(lane, logits[i + lane]);
    }
    for (; i < logits.size(); ++i) look(0, logits[i]);
    if (std::ranges::any_of(is_bad, [](uint32_t bad) { return bad != 0; })) {
        return std::numeric_limits<float>::quiet_NaN();
    }
    return *std::ranges::max_element(highest);
}

}  // namespace

Result<Maximum> find_maximum(std::span<const float> logits) {
    constexpr size_t kBlock = 1024;
    Maximum best{0, kLowest};
    for (size_t begin = 0; begin < logits.size(); begin += kBlock) {
        const auto block = logits.subspan(begin, std::min(kBlock, logits.size() - begin));
        const float highest = highest_of(block);
        if (std::isnan(highest)) return bad_logits(logits);
        if (!(highest > best.logit)) continue;
        const auto at = std::ranges::find(block, highest);
        best = {static_cast<uint32_t>(begin + static_cast<size_t>(at - block.begin())), *at};
    }
    if (best.logit == kLowest) return bad_logits(logits);
    return best;
}

}  // namespace afd::model
