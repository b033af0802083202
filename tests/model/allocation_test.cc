// SPDX-License-Identifier: Apache-2.0
//
// Goal: what an attention worker's data thread runs per step allocates nothing (promise 5).
// Method: this program counts every operator new. Oracle: the count stands still over a step.

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <vector>

#include "model/decoder/attention_half.h"
#include "model/decoder/embedding_head.h"
#include "model/sampling/sampler.h"
#include "tests/counted_allocations.h"
#include "tests/model/checkpoint/checkpoint_builder.h"
#include "tests/temporary_directory.h"

namespace afd::model {
namespace {

TEST(AttentionStep, AllocatesNothing) {
    const test::TemporaryDirectory directory;
    CheckpointBuilder(small_config()).write(directory.path());
    const ModelFiles files = ModelFiles::open(directory.path()).value();
    const ModelConfig& config = files.config();
    const auto numeric_class = ops::best_numeric_class();
    const AttentionHalf half = AttentionHalf::load(files, numeric_class).value();
    const EmbeddingHead ends = EmbeddingHead::load(files, numeric_class).value();
    const KvCache cache = KvCache::create(kv_shape(config), 128).value();
    BlockAllocator allocator(cache.num_blocks());
    ops::SerialParallel serial;
    constexpr size_t kTokens = 5;
    AttentionWorkspace workspace(half, kTokens, serial.num_threads());
    Sampler sampler(config.vocab_size);
    std::vector<ops::Bf16> rows(2 * kTokens * config.hidden);
    std::vector<float> logits(kTokens * config.vocab_size);
    std::vector<int32_t> ids(kTokens * config.top_k);
    std::vector<float> weights(kTokens * config.top_k);
    std::vector<int32_t> blocks;
    blocks.reserve(2);
    const std::vector<int32_t> tokens = {3, 1, 4, 1, 5};
    const std::vector<int32_t> positions = {0, 1, 2, 3, 4};

    const SamplingParams params{.top_k = 20,
                                .top_p = 0.9f,
                                .repetition_penalty = 1.1f,
                                .presence_penalty = 0.5f,
                                .logit_bias = {{1, 2.0f}}};
    const std::vector<uint32_t> history = {3, 1, 4, 1, 5};
    const std::vector<uint32_t> banned = {2};
    std::array<TokenLogprob, 5> top;

    const uint64_t before = test::num_allocations();
    ASSERT_TRUE(allocator.reserve(100, blocks));
    std::array<int64_t, kTokens> cache_index;
    std::array<const int32_t*, kTokens> tables;
    for (size_t t = 0; t < kTokens; ++t) {
        cache_index[t] = cache_row(blocks, static_cast<uint32_t>(t));
        tables[t] = blocks.data();
    }
    const ops::AttentionBatch batch{.num_tokens = kTokens,
                                    .positions = positions.data(),
                                    .cache_index = cache_index.data(),
                                    .block_tables = tables.data()};
    const auto residual = ops::make_rows(rows.data(), kTokens, size_t{config.hidden});
    const auto x =
        ops::make_rows(rows.data() + kTokens * config.hidden, kTokens, size_t{config.hidden});
    ends.embed(tokens, residual);
    for (uint32_t layer = 0; layer < config.num_layers; ++layer) {
        half.attention(layer, batch, cache, residual, workspace, serial);
        half.pre_ffn(layer, residual, {x, {ids.data(), weights.data()}}, workspace, serial);
        add_residual(residual, x, serial);
    }
    ends.head(residual,
              residual,
              ops::make_rows(logits.data(), kTokens, size_t{config.vocab_size}),
              serial);
    const auto sampled = sampler.sample(
        std::span(logits).first(config.vocab_size), params, 5, {history, 2, banned}, top);
    allocator.release(blocks);
    const uint64_t after = test::num_allocations();

    EXPECT_TRUE(sampled.ok());
    EXPECT_EQ(after, before);
    EXPECT_GT(before, 0u);
}

}  // namespace
}  // namespace afd::model
