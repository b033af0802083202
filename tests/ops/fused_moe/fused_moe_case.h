// SPDX-License-Identifier: Apache-2.0
#pragma once

// A small layer within one process, its tokens and its composition, for the tests of the driver.

#include <gtest/gtest.h>

#include <span>
#include <vector>

#include "ops/fused_moe/fused_moe.h"
#include "ops/fused_moe/parts/local_prepare_finalize.h"
#include "ops/reference/expert_ffn.h"
#include "tests/ops/test_data.h"

namespace afd::ops::test::layer {

inline constexpr size_t kHidden = 50;
inline constexpr size_t kExperts = 6;
inline constexpr size_t kPerLayer = kExperts + 1;  // One shared MLP, wider than the routed ones.
inline constexpr size_t kLayers = 2;
inline constexpr size_t kTopK = 3;

inline FusedMoeConfig config() {
    return {.hidden = kHidden,
            .num_experts = kExperts,
            .top_k = kTopK,
            .num_shared = 1,
            .max_num_tokens = 512,
            .num_micro_batches = 2};
}

struct Model {
    std::vector<RandomMatrix> gate;
    std::vector<RandomMatrix> up;
    std::vector<RandomMatrix> down;
    ExpertTable table{kLayers * kPerLayer, kHidden};

    explicit Model(NumericClass numeric_class) {
        for (size_t key = 0; key < kLayers * kPerLayer; ++key) {
            const size_t intermediate = key % kPerLayer == kExperts ? 70 : 33;
            const auto seed = static_cast<uint32_t>(key * 3 + 50);
            gate.emplace_back(intermediate, kHidden, seed, 0.3f);
            up.emplace_back(intermediate, kHidden, seed + 1, 0.3f);
            down.emplace_back(kHidden, intermediate, seed + 2, 0.3f);
            table.set(
                key,
                pack_expert(gate[key].rows(), up[key].rows(), down[key].rows(), numeric_class));
        }
    }

    std::vector<reference::ExpertWeights> reference_weights() const {
        std::vector<reference::ExpertWeights> weights;
        for (size_t key = 0; key < gate.size(); ++key) {
            weights.push_back({gate[key].rows(), up[key].rows(), down[key].rows()});
        }
        return weights;
    }
};

// Tokens with routing; repeated and masked ids are ordinary input.
struct Tokens {
    RandomMatrix x;
    std::vector<int32_t> ids;
    std::vector<float> weights;

    Tokens(size_t count, uint32_t seed) : x(count, kHidden, seed) {
        const int32_t choices[] = {0, 5, 3, -1, 3, 1, 2, 4, 4, 6, 0};
        for (size_t i = 0; i < count * kTopK; ++i) {
            ids.push_back(choices[(i * i + seed) % 11]);
            weights.push_back(0.05f + 0.1f * static_cast<float>((i + seed) % 9));
        }
    }

    Tokens pick(std::span<const size_t> rows) const {
        Tokens picked(0, 0);
        picked.x = x.pick(rows);
        for (const size_t row : rows) {
            for (size_t k = 0; k < kTopK; ++k) {
                picked.ids.push_back(ids[row * kTopK + k]);
                picked.weights.push_back(weights[row * kTopK + k]);
            }
        }
        return picked;
    }

    MoeInput input(uint32_t layer_id) const {
        return {.x = x.rows(),
                .layer_id = layer_id,
                .num_tokens = static_cast<uint32_t>(x.num_rows),
                .top_k = kTopK,
                .num_shared = 1,
                .topk_ids = ids.data(),
                .topk_weights = weights.data()};
    }
};

// A composed layer with its parts.
struct Composition {
    LocalPrepareFinalize prepare_finalize;
    Experts& experts;
    FusedMoe moe;

    Composition(Experts& part, const FusedMoeConfig& wanted, Parallel& parallel)
        : prepare_finalize(wanted, parallel),
          experts(part),
          moe(FusedMoe::compose(prepare_finalize, part, wanted, parallel).value()) {}

    std::vector<Bf16> apply(const Tokens& tokens, uint32_t layer_id) {
        RandomMatrix out(tokens.x.num_rows, kHidden, 1);
        const Result<> result = moe.apply(tokens.input(layer_id), out.mutable_rows());
        EXPECT_TRUE(result.ok());
        return out.values;
    }
};

}  // namespace afd::ops::test::layer
