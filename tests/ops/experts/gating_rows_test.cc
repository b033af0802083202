// SPDX-License-Identifier: Apache-2.0

#include "ops/experts/gating_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/reference/gating_rows.h"
#include "ops/tensor/workspace.h"
#include "tests/ops/random_values.h"
#include "tests/ops/test_data.h"

namespace afd::ops {
namespace {

struct Routing {
    std::vector<float> weights;
    std::vector<int32_t> ids;
};

Routing route(const GatingAttributes& a,
              const std::vector<float>& logits,
              std::span<const float> bias) {
    const size_t num_tokens = logits.size() / a.num_experts;
    Routing routing{std::vector<float>(num_tokens * a.top_k),
                    std::vector<int32_t>(num_tokens * a.top_k)};
    const Workspace workspace(gating_rows_workspace_bytes(a));
    gating_rows(a,
                make_rows(logits.data(), num_tokens, a.num_experts),
                bias,
                make_rows(routing.weights.data(), num_tokens, a.top_k),
                make_rows(routing.ids.data(), num_tokens, a.top_k),
                workspace.bytes());
    return routing;
}

std::vector<float> random_floats(size_t count, uint32_t seed) {
    test::RandomValues random(seed, 1.0f);
    std::vector<float> values(count);
    for (float& value : values) value = random.next();
    return values;
}

GatingAttributes deepseek_v3() {
    return {.num_experts = 64,
            .top_k = 6,
            .norm = GatingNorm::kSigmoid,
            .n_group = 8,
            .topk_group = 3,
            .group_select_mode = GroupSelectMode::kSumOfTwoBest,
            .norm_topk_prob = true,
            .routed_scaling_factor = 2.5f};
}

GatingAttributes deepseek_v2_greedy() {
    return {.num_experts = 40, .top_k = 6, .norm = GatingNorm::kSoftmax};
}

GatingAttributes deepseek_v2_groups() {
    return {.num_experts = 160,
            .top_k = 6,
            .norm = GatingNorm::kSoftmax,
            .n_group = 8,
            .topk_group = 3,
            .group_select_mode = GroupSelectMode::kMax,
            .routed_scaling_factor = 16.0f};
}

GatingAttributes sqrt_softplus() {
    return {.num_experts = 96,
            .top_k = 6,
            .norm = GatingNorm::kSqrtSoftplus,
            .norm_topk_prob = true,
            .routed_scaling_factor = 1.5f};
}

GatingAttributes sparse_mixer(float jitter) {
    return {.num_experts = 16, .top_k = 2, .mixer_jitter = jitter};
}

// Bound on weights: scores are within 4 fp32 ulp, the softmax sum of E terms within E/16 + 4 more;
// 1e-5 relative covers E = 160.
TEST(GatingRows, MatchesReferenceForEveryScoring) {
    for (const auto& a : {deepseek_v3(),
                          deepseek_v2_greedy(),
                          deepseek_v2_groups(),
                          sqrt_softplus(),
                          sparse_mixer(0.01f),
                          sparse_mixer(0.4f),
                          sparse_mixer(0)}) {
        const size_t num_tokens = 200;
        const std::vector<float> logits = random_floats(num_tokens * a.num_experts, 1);
        const bool has_bias = a.norm != GatingNorm::kSoftmax;
        const std::vector<float> bias = random_floats(has_bias ? a.num_experts : 0, 2);
        const Routing routing = route(a, logits, bias);
        reference::Matrix wide(num_tokens, a.num_experts);
        for (size_t i = 0; i < logits.size(); ++i) wide.values[i] = logits[i];
        const auto want = reference::gating_rows(a, wide, bias);
        EXPECT_EQ(routing.ids, want.ids);
        for (size_t i = 0; i < routing.weights.size(); ++i) {
            EXPECT_NEAR(routing.weights[i] / want.weights.values[i], 1.0, 1e-5);
        }
    }
}

// Goal: no logit is too large or too small for a norm. Oracle: the reference; a score that fp32
// does not hold is 0, and among such the lowest index wins.
TEST(GatingRows, MatchesReferenceForLogitsOfAnySize) {
    for (const GatingNorm norm :
         {GatingNorm::kSoftmax, GatingNorm::kSigmoid, GatingNorm::kSqrtSoftplus}) {
        const GatingAttributes a{.num_experts = 4, .top_k = 3, .norm = norm};
        for (const std::vector<float>& logits : {std::vector<float>{710, 1000, 5, 3e38f},
                                                 {-710, -1000, -5, -3e38f},
                                                 {-105, -104.5f, -60, -104},
                                                 {0, -750, 750, 88.5f}}) {
            const Routing routing = route(a, logits, {});
            reference::Matrix wide(1, 4);
            std::copy(logits.begin(), logits.end(), wide.values.begin());
            const auto want = reference::gating_rows(a, wide, {});
            EXPECT_EQ(routing.ids, want.ids) << static_cast<int>(norm) << ", " << logits[0];
            for (size_t k = 0; k < a.top_k; ++k) {
                EXPECT_TRUE(std::isfinite(routing.weights[k]));
                EXPECT_NEAR(
                    routing.weights[k], want.weights.values[k], 1e-6 * want.weights.values[k]);
            }
        }
    }
}

TEST(GatingRows, BiasChoosesButDoesNotWeigh) {
    const GatingAttributes a{.num_experts = 4, .top_k = 1, .norm = GatingNorm::kSigmoid};
    const float bias[] = {0, 0, 10, 0};
    const Routing routing = route(a, {3, 2, 0, 1}, bias);
    EXPECT_EQ(routing.ids[0], 2);
    EXPECT_EQ(routing.weights[0], 0.5f);
}

TEST(GatingRows, EqualChoicesGoToTheLowestIndexAndGroup) {
    GatingAttributes a = deepseek_v3();
    a.norm_topk_prob = false;
    const Routing routing = route(a, std::vector<float>(64, 0.25f), {});
    EXPECT_EQ(routing.ids, (std::vector<int32_t>{0, 1, 2, 3, 4, 5}));
}

TEST(GatingRows, AGroupOfOneExpertIsRankedByItsOnlyChoice) {
    const GatingAttributes a{.num_experts = 4,
                             .top_k = 2,
                             .norm = GatingNorm::kSigmoid,
                             .n_group = 4,
                             .topk_group = 2,
                             .group_select_mode = GroupSelectMode::kSumOfTwoBest};
    EXPECT_EQ(route(a, {1, 4, 2, 3}, {}).ids, (std::vector<int32_t>{1, 3}));
}

TEST(GatingRows, ANanRowIsVisibleAndLeavesItsNeighboursAlone) {
    const GatingAttributes a = deepseek_v3();
    std::vector<float> logits = random_floats(3 * 64, 3);
    const Routing clean = route(a, logits, {});
    logits[64 + 17] = std::numeric_limits<float>::quiet_NaN();
    const Routing routing = route(a, logits, {});
    for (size_t k = 0; k < 6; ++k) {
        EXPECT_EQ(routing.ids[6 + k], static_cast<int32_t>(k));
        EXPECT_TRUE(std::isnan(routing.weights[6 + k]));
        EXPECT_EQ(routing.ids[k], clean.ids[k]);
        EXPECT_EQ(routing.weights[12 + k], clean.weights[12 + k]);
    }
}

// Goal: both implementations give the same where a group has no score. Method: biases that make
// the two best choices of a group +inf and -inf; with all groups kept, the best is still the best.
// Oracle: the rule, and the reference.
TEST(GatingRows, AGroupOfInfinitiesIsVisibleWhereGroupsAreRanked) {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    GatingAttributes a{.num_experts = 6,
                       .top_k = 2,
                       .norm = GatingNorm::kSigmoid,
                       .n_group = 3,
                       .topk_group = 1,
                       .group_select_mode = GroupSelectMode::kSumOfTwoBest};
    const std::vector<float> logits = {1, 2, 3, 4, 5, 6};
    reference::Matrix wide(1, 6);
    std::ranges::copy(logits, wide.values.begin());
    const std::vector<float> bias = {0, 0, -kInfinity, kInfinity, 0, 0};
    const Routing routing = route(a, logits, bias);
    const auto want = reference::gating_rows(a, wide, bias);
    EXPECT_EQ(routing.ids, (std::vector<int32_t>{0, 1}));
    EXPECT_EQ(want.ids, routing.ids);
    for (size_t k = 0; k < 2; ++k) {
        EXPECT_TRUE(std::isnan(routing.weights[k]) && std::isnan(want.weights.values[k]));
    }
    a.topk_group = 3;
    EXPECT_EQ(route(a, logits, bias).ids, (std::vector<int32_t>{3, 5}));
    EXPECT_EQ(reference::gating_rows(a, wide, bias).ids, (std::vector<int32_t>{3, 5}));
    a.topk_group = 1;
    a.group_select_mode = GroupSelectMode::kMax;
    EXPECT_EQ(route(a, logits, bias).ids, (std::vector<int32_t>{3, 2}));
    EXPECT_EQ(reference::gating_rows(a, wide, bias).ids, (std::vector<int32_t>{3, 2}));
}

void expect_row_invariant(const GatingAttributes& a) {
    const std::vector<float> logits = random_floats(32 * a.num_experts, 4);
    test::expect_row_invariant(32, [&](std::span<const size_t> rows, Parallel&) {
        std::vector<float> picked;
        for (const size_t row : rows) {
            const auto first = logits.begin() + static_cast<ptrdiff_t>(row * a.num_experts);
            picked.insert(picked.end(), first, first + static_cast<ptrdiff_t>(a.num_experts));
        }
        const Routing routing = route(a, picked, {});
        std::vector<uint32_t> bits;
        for (size_t i = 0; i < routing.ids.size(); ++i) {
            bits.push_back(static_cast<uint32_t>(routing.ids[i]));
            bits.push_back(std::bit_cast<uint32_t>(routing.weights[i]));
        }
        return bits;
    });
}

TEST(GatingRows, IsRowInvariant) {
    expect_row_invariant(deepseek_v2_groups());
    expect_row_invariant(sparse_mixer(0.3f));
}

// Oracle: worked out by hand from the rule.
TEST(GatingRows, ASparseMixerWeighsEachPickAmongItsNearRivals) {
    const GatingAttributes a{.num_experts = 4, .top_k = 2, .mixer_jitter = 0.01f};
    // 1.99 is near 2, within 2 %; nothing is near 1.99 that is left.
    Routing routing = route(a, {1.99f, 2.0f, 0.0f, -3.0f}, {});
    EXPECT_EQ(routing.ids, (std::vector<int32_t>{1, 0}));
    EXPECT_NEAR(routing.weights[0], 1 / (1 + std::exp(-0.01)), 1e-6);
    EXPECT_EQ(routing.weights[1], 1.0f);
    // Below zero the distance is measured by the rival's own size.
    routing = route(a, {-5.0f, -1.01f, -1.0f, -1.02f}, {});
    EXPECT_EQ(routing.ids, (std::vector<int32_t>{2, 1}));
    EXPECT_NEAR(routing.weights[0], 1 / (1 + std::exp(-0.01) + std::exp(-0.02)), 1e-6);
    EXPECT_NEAR(routing.weights[1], 1 / (1 + std::exp(-0.01)), 1e-6);
    // Equal ones, and 0 / 0.
    for (const float value : {0.25f, 0.0f, -0.5f}) {
        routing = route(a, std::vector<float>(4, value), {});
        EXPECT_EQ(routing.ids, (std::vector<int32_t>{0, 1}));
        EXPECT_EQ(routing.weights, (std::vector<float>{0.25f, 1.0f / 3}));
    }
}

TEST(GatingRows, ASparseMixerShowsWhatIsNoNumber) {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    const GatingAttributes a{.num_experts = 3, .top_k = 2, .mixer_jitter = 0.01f};
    for (const std::vector<float>& logits : {std::vector<float>{1, std::nanf(""), 2},
                                             {1, kInfinity, 2},
                                             {-kInfinity, 1, -kInfinity}}) {
        const Routing routing = route(a, logits, {});
        EXPECT_EQ(routing.ids, (std::vector<int32_t>{0, 1}));
        EXPECT_TRUE(std::isnan(routing.weights[0]) && std::isnan(routing.weights[1]));
    }
}

TEST(GatingRows, RefusesAttributesByNameValueAndLimit) {
    GatingAttributes a = deepseek_v3();
    a.num_experts = 60;
    EXPECT_EQ(validate(a).error().message,
              "num_experts is 60; it must be a positive multiple of n_group, which is 8");
    a = deepseek_v3();
    a.topk_group = 9;
    EXPECT_EQ(validate(a).error().message, "topk_group is 9; allowed are 1 ... n_group, 8");
    a = deepseek_v3();
    a.top_k = 25;
    EXPECT_EQ(validate(a).error().message,
              "top_k is 25; allowed are 1 ... topk_group * num_experts / n_group, 24");
    EXPECT_TRUE(validate(deepseek_v3()).ok());
    a = sparse_mixer(0.01f);
    EXPECT_TRUE(validate(a).ok());
    a.top_k = 3;
    EXPECT_EQ(validate(a).error().message, "top_k is 3; with mixer_jitter it must be 2");
    EXPECT_EQ(validate(sparse_mixer(-1)).error().message,
              "mixer_jitter is -1.000000; it must be finite and not negative");
}

// Goal: experts that are given get the weights that the choice would have given them, with every
// scoring, also repeated ones; what is chosen does not depend on the scores.
// Oracle: the reference; and for ids that gating_rows chose, its own weights, bit for bit.
TEST(GatingWeights, GivenExpertsHaveTheWeightsOfTheirScores) {
    for (const auto& a :
         {deepseek_v3(), deepseek_v2_greedy(), deepseek_v2_groups(), sqrt_softplus()}) {
        const size_t num_tokens = 50;
        const std::vector<float> logits = random_floats(num_tokens * a.num_experts, 8);
        const Routing chosen = route(a, logits, {});
        std::vector<int32_t> others = chosen.ids;
        for (size_t i = 0; i < others.size(); ++i) {
            others[i] = static_cast<int32_t>(i * 7 % a.num_experts);
            if (i % a.top_k == 1) others[i] = others[i - 1];
        }
        const auto weights_of = [&](const std::vector<int32_t>& ids) {
            std::vector<float> weights(ids.size());
            const Workspace workspace(gating_rows_workspace_bytes(a));
            gating_weights(a,
                           make_rows(logits.data(), num_tokens, a.num_experts),
                           make_rows(ids.data(), num_tokens, a.top_k),
                           make_rows(weights.data(), num_tokens, a.top_k),
                           workspace.bytes());
            return weights;
        };
        EXPECT_EQ(weights_of(chosen.ids), chosen.weights);
        reference::Matrix wide(num_tokens, a.num_experts);
        for (size_t i = 0; i < logits.size(); ++i) wide.values[i] = logits[i];
        const auto expected = reference::gating_weights(a, wide, others);
        EXPECT_EQ(expected.ids, others);
        const std::vector<float> weights = weights_of(others);
        for (size_t i = 0; i < weights.size(); ++i) {
            const double want = expected.weights.values[i];
            ASSERT_NEAR(weights[i], want, 1e-5 * std::abs(want)) << i;
        }
    }
}

TEST(GatingWeights, ARowWithANanScoreHasNanWeights) {
    const GatingAttributes a{
        .num_experts = 4, .top_k = 2, .norm = GatingNorm::kSqrtSoftplus, .norm_topk_prob = true};
    std::vector<float> logits(8, 0.5f);
    logits[5] = std::numeric_limits<float>::quiet_NaN();
    const std::vector<int32_t> ids = {3, 0, 2, 0};
    std::vector<float> weights(4);
    const Workspace workspace(gating_rows_workspace_bytes(a));
    gating_weights(a,
                   make_rows(logits.data(), 2, 4),
                   make_rows(ids.data(), 2, 2),
                   make_rows(weights.data(), 2, 2),
                   workspace.bytes());
    EXPECT_EQ(weights[0], 0.5f);
    EXPECT_EQ(weights[1], 0.5f);
    EXPECT_TRUE(std::isnan(weights[2]) && std::isnan(weights[3]));
}

}  // namespace
}  // namespace afd::ops
