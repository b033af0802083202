// SPDX-License-Identifier: Apache-2.0
//
// What a dispatch says about the rows that it hands over, and what the driver asserts of it.

#include <gtest/gtest.h>

#include "ops/fused_moe/fused_moe.h"
#include "tests/ops/fused_moe/moe_matrix.h"

namespace afd::ops {
namespace {

using test::MatrixCase;

// The rows of each expert: of a case's slots, or with batched activations of its tokens, since an
// expert that a token names twice gets its row once.
std::vector<int32_t> expected_counts(const MatrixCase& c, bool is_batched) {
    std::vector<int32_t> counts(test::kMatrixPerLayer, 0);
    for (uint32_t token = 0; token < c.num_tokens; ++token) {
        std::vector<bool> has_row(test::kMatrixPerLayer, false);
        for (uint32_t k = 0; k < c.top_k; ++k) {
            const int32_t id = c.ids[token * c.top_k + k];
            if (id < 0 || (is_batched && has_row[static_cast<size_t>(id)])) continue;
            has_row[static_cast<size_t>(id)] = true;
            ++counts[static_cast<size_t>(id)];
        }
        ++counts[test::kMatrixExperts];
    }
    return counts;
}

// Goal: every part within one process says exactly what it hands over.
// Method: the cases of the matrix through each of them. Oracle: the counts above.
TEST(ActivationMetadata, EveryPartSaysWhatItHandsOver) {
    const test::MatrixModel model(ExpertQuantisation::kNone);
    const test::MatrixShard shard = model.whole();
    const test::RandomMatrix x = test::matrix_tokens();
    SerialParallel serial;
    size_t num_parts = 0;
    for (const PrepareFinalizeEntry& entry : prepare_finalize_parts()) {
        if (entry.make == nullptr) continue;
        ++num_parts;
        const FusedMoeConfig config = test::matrix_config(ExpertQuantisation::kNone);
        const auto part = entry.make(config, serial);
        const auto experts = find_experts("reference").value()->make(shard.setup());
        FusedMoe moe = FusedMoe::compose(*part, *experts, config, serial).value();
        const bool is_batched = entry.capability->activation_format == ActivationFormat::kBatched;
        for (const MatrixCase& c : test::matrix_cases()) {
            if (c.num_tokens > 33) continue;
            const MoeTicket ticket = moe.start(c.input(x), 0).value();
            const ActivationMetadata metadata = moe.metadata(ticket);
            const std::vector<int32_t> want = expected_counts(c, is_batched);
            const std::string where = std::string(entry.capability->name) + ": " + c.name();
            EXPECT_EQ(
                std::vector<int32_t>(metadata.expert_counts.begin(), metadata.expert_counts.end()),
                want)
                << where;
            int32_t total = 0;
            for (const int32_t count : want) total += count;
            EXPECT_EQ(metadata.total, Count(static_cast<uint64_t>(total))) << where;
            ASSERT_EQ(metadata.source_prefix.size(), 2u) << where;
            EXPECT_EQ(metadata.source_prefix[0], 0) << where;
            EXPECT_EQ(metadata.source_prefix[1], total) << where;
        }
    }
    EXPECT_EQ(num_parts, 3u);
}

// Of two sources, five rows and three experts.
struct Handed {
    std::vector<int32_t> counts{2, 0, 3};
    std::vector<int32_t> prefix{0, 4, 5};
    std::vector<ExpertGroup> groups{{.key = 6, .count = 2}, {.key = 8, .count = 3}};
    uint64_t total = 5;

    void check() const {
        assert_consistent({Count(total), counts, prefix},
                          GroupedActivations{.x = {}, .groups = groups});
    }
};

TEST(ActivationMetadataDeathTest, WhatDoesNotAddUpIsOurBug) {
    Handed handed;
    handed.check();
    handed.counts[1] = 1;
    EXPECT_DEATH(handed.check(), "the experts have 6 rows of 5");
    handed = {};
    handed.counts[1] = -1;
    EXPECT_DEATH(handed.check(), "expert 1 has -1 rows");
    handed = {};
    handed.prefix = {0, 4, 4};
    EXPECT_DEATH(handed.check(), "the sources have 4 rows of 5");
    handed.prefix = {0, 6, 5};
    EXPECT_DEATH(handed.check(), "do not ascend");
    handed.prefix = {0};
    EXPECT_DEATH(handed.check(), "metadata of 3 experts and 1 prefixes");
    handed = {};
    handed.counts.clear();
    EXPECT_DEATH(handed.check(), "metadata of 0 experts and 3 prefixes");
    handed = {};
    handed.groups.pop_back();
    EXPECT_DEATH(handed.check(), "the activations have 2 rows of 5");
}

// Goal: an id from the routed experts on, also one that counts on to a shared expert, masks its
// slot in every part within one process, on the way there and back.
// Method: calls whose masked slots hold such ids. Oracle: the same calls with -1 in them.
TEST(ActivationMetadata, EveryPartMasksIdsThatAreNoRoutedExperts) {
    const test::MatrixModel model(ExpertQuantisation::kNone);
    const test::MatrixShard shard = model.whole();
    const test::RandomMatrix x = test::matrix_tokens();
    SerialParallel serial;
    for (const PrepareFinalizeEntry& entry : prepare_finalize_parts()) {
        if (entry.make == nullptr) continue;
        const FusedMoeConfig config = test::matrix_config(ExpertQuantisation::kNone);
        const auto part = entry.make(config, serial);
        const auto experts = find_experts("reference").value()->make(shard.setup());
        FusedMoe moe = FusedMoe::compose(*part, *experts, config, serial).value();
        const auto computed = [&](const MatrixCase& c) {
            test::RandomMatrix out(c.num_tokens, test::kMatrixHidden, 1);
            EXPECT_TRUE(moe.apply(c.input(x), out.mutable_rows()).ok());
            return out.values;
        };
        MatrixCase masked(33, 4, test::Routing::kUniform);
        MatrixCase named = masked;
        constexpr int32_t kNoRoutedExpert[] = {
            test::kMatrixExperts, test::kMatrixExperts + 1, INT32_MAX};
        for (size_t i = 0; i < masked.ids.size(); i += 3) {
            masked.ids[i] = -1;
            named.ids[i] = kNoRoutedExpert[i % 9 / 3];
        }
        EXPECT_EQ(computed(named), computed(masked)) << entry.capability->name;
    }
}

}  // namespace
}  // namespace afd::ops
