// SPDX-License-Identifier: Apache-2.0
#pragma once

// A small MoE model with random weights, random calls of its layers, and the oracle of their bits:
// what the tests of the layer between processes share (window_moe_test.cc, two_phase_moe_test.cc,
// two_phase_faults_test.cc). Everything is made from seeds.

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "ops/fused_moe/fused_moe.h"
#include "ops/fused_moe/parts/grouped_experts.h"
#include "ops/fused_moe/parts/local_prepare_finalize.h"
#include "schedule/dispatch/expert_placement.h"

namespace afd::daemon {

inline constexpr uint32_t kHidden = 64;
inline constexpr uint32_t kLayers = 3;  // Layer 0 is dense.
inline constexpr uint32_t kRoutedExperts = 6;
inline constexpr uint32_t kTopK = 3;
inline constexpr uint32_t kPerLayer = kRoutedExperts + 1;  // And the shared one.

using Matrix = std::vector<ops::Bf16>;

inline Matrix random_matrix(size_t rows, size_t cols, uint32_t seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, 0.2F);
    Matrix matrix(rows * cols);
    for (ops::Bf16& value : matrix) value = ops::from_float(normal(random));
    return matrix;
}

inline uint32_t intermediate_of(uint32_t layer, uint32_t expert) {
    return expert == kRoutedExperts || layer == 0 ? 48 : 32;
}

// An expert's gate, up or down (`which` 1 to 3), which depend only on layer and logical expert.
inline Matrix expert_matrix(uint32_t layer, uint32_t expert, uint32_t which) {
    const uint32_t intermediate = intermediate_of(layer, expert);
    return random_matrix(which == 3 ? kHidden : intermediate,
                         which == 3 ? intermediate : kHidden,
                         1000 * layer + 10 * expert + which);
}

inline ops::PackedExpert make_expert(uint32_t layer, uint32_t expert) {
    const uint32_t intermediate = intermediate_of(layer, expert);
    const Matrix gate = expert_matrix(layer, expert, 1);
    const Matrix up = expert_matrix(layer, expert, 2);
    const Matrix down = expert_matrix(layer, expert, 3);
    return ops::pack_expert(ops::make_rows(gate.data(), intermediate, kHidden),
                            ops::make_rows(up.data(), intermediate, kHidden),
                            ops::make_rows(down.data(), kHidden, intermediate),
                            ops::best_numeric_class());
}

// `num_shared` 0: the sessions compute the shared expert.
inline schedule::ExpertPlacement placement_of(uint32_t num_ranks, uint32_t num_shared = 1) {
    const schedule::LayerExperts layers[] = {
        {0, 1}, {kRoutedExperts, num_shared}, {kRoutedExperts, num_shared}};
    return schedule::ExpertPlacement::round_robin(layers, num_ranks).value();
}

// A rank's experts, key = layer · num_local_experts_per_layer + local id.
inline ops::ExpertTable shard(const schedule::ExpertPlacement& placement, uint32_t rank) {
    const size_t per_layer = placement.num_local_experts_per_layer(rank);
    ops::ExpertTable table(kLayers * per_layer, kHidden);
    for (const schedule::HeldExpert& local : placement.held_experts(rank)) {
        table.set(local.layer_id * per_layer + static_cast<size_t>(local.local_id),
                  make_expert(local.layer_id, local.expert));
    }
    return table;
}

// Key = layer · kPerLayer + logical expert.
inline const ops::ExpertTable& all_experts() {
    static const ops::ExpertTable table = [] {
        ops::ExpertTable made(kLayers * kPerLayer, kHidden);
        made.set(0, make_expert(0, 0));
        for (uint32_t layer = 1; layer < kLayers; ++layer) {
            for (uint32_t expert = 0; expert <= kRoutedExperts; ++expert) {
                made.set(layer * kPerLayer + expert, make_expert(layer, expert));
            }
        }
        return made;
    }();
    return table;
}

// One random call of a layer with up to `num_tokens_max` tokens, made from a seed. Now and then
// every routed slot is masked, or all tokens choose one expert.
struct Call {
    uint32_t num_tokens_max;
    Matrix x;
    std::vector<int32_t> ids;
    std::vector<float> weights;
    ops::MoeInput input;

    Call(uint32_t seed, uint32_t tokens_max) : num_tokens_max(tokens_max) {
        std::mt19937 random(seed);
        input.num_tokens = static_cast<uint32_t>(random()) % (tokens_max + 1);
        input.layer_id = static_cast<uint32_t>(random()) % kLayers;
        input.top_k = kTopK;
        input.num_shared = input.layer_id == 0 ? 0 : 1;
        const uint32_t kind = static_cast<uint32_t>(random()) % 8;
        x = random_matrix(input.num_tokens, kHidden, seed);
        for (uint32_t i = 0; i < input.num_tokens * kTopK; ++i) {
            const bool is_masked = kind == 0 || random() % 5 == 0;
            const auto expert = static_cast<int32_t>(kind == 1 ? 2 : random() % kRoutedExperts);
            const int32_t dense = i % kTopK == 0 ? 0 : -1;
            ids.push_back(input.layer_id == 0 ? dense : is_masked ? -1 : expert);
            weights.push_back(static_cast<float>(random() % 100) / 100);
        }
        input.x = ops::make_rows<const ops::Bf16>(x.data(), input.num_tokens, kHidden);
        input.topk_ids = ids.data();
        input.topk_weights = weights.data();
    }
    // `input` points into the others.
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
};

inline std::vector<uint16_t> bits_of(const Matrix& rows, size_t count) {
    std::vector<uint16_t> bits;
    for (size_t i = 0; i < count; ++i) bits.push_back(rows[i].bits);
    return bits;
}

inline ops::FusedMoeConfig moe_config(uint32_t num_tokens_max, uint32_t num_micro_batches = 1) {
    return {.hidden = kHidden,
            .num_experts = kRoutedExperts,
            .top_k = kTopK,
            .num_shared = 1,
            .max_num_tokens = num_tokens_max,
            .num_micro_batches = num_micro_batches};
}

// The oracle: the call's result in this process, by ops::LocalPrepareFinalize with
// ops::GroupedExperts over the same weights.
inline std::vector<uint16_t> local_result(const Call& call) {
    ops::SerialParallel serial;
    const ops::FusedMoeConfig config = moe_config(call.num_tokens_max);
    ops::LocalPrepareFinalize prepare_finalize(config, serial);
    ops::GroupedExperts experts(all_experts(), kPerLayer);
    auto moe = ops::FusedMoe::compose(prepare_finalize, experts, config, serial);
    EXPECT_TRUE(moe.ok()) << moe.error().message;
    Matrix out(size_t{call.num_tokens_max} * kHidden);
    const auto applied =
        moe.value().apply(call.input, ops::make_rows(out.data(), call.input.num_tokens, kHidden));
    EXPECT_TRUE(applied.ok()) << applied.error().message;
    return bits_of(out, size_t{call.input.num_tokens} * kHidden);
}

}  // namespace afd::daemon
