// SPDX-License-Identifier: Apache-2.0
#include "model/decoder/attention_half.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "tests/model/checkpoint/checkpoint_builder.h"
#include "tests/temporary_directory.h"

namespace afd::model {
namespace {

using ops::Bf16;
using ::testing::Each;
using ::testing::ElementsAre;

constexpr size_t kHidden = 64;

// One token of one sequence, with its blocks.
struct Token {
    int32_t position;
    const std::vector<int32_t>* blocks;
    std::vector<Bf16> residual;
};

class AttentionHalfTest : public ::testing::Test {
  protected:
    AttentionHalfTest()
        : files_(open()),
          half_(AttentionHalf::load(files_, ops::best_numeric_class()).value()),
          workspace_(half_, 256, 1) {}

    ModelFiles open() {
        CheckpointBuilder(small_config()).write(directory_.path());
        return ModelFiles::open(directory_.path()).value();
    }

    // Residual rows of a made-up sequence.
    static std::vector<Token> sequence(size_t length,
                                       uint32_t seed,
                                       const std::vector<int32_t>& blocks) {
        std::mt19937 generator(seed);
        std::normal_distribution<float> normal;
        std::vector<Token> tokens;
        for (size_t t = 0; t < length; ++t) {
            Token token{static_cast<int32_t>(t), &blocks, std::vector<Bf16>(kHidden)};
            for (Bf16& value : token.residual) value = ops::from_float(normal(generator));
            tokens.push_back(std::move(token));
        }
        return tokens;
    }

    // Runs layer 1 over these tokens as one micro-batch; their new residual rows.
    std::vector<std::vector<Bf16>> attend(const std::vector<const Token*>& tokens,
                                          const KvCache& cache) {
        std::vector<int32_t> positions;
        std::vector<int64_t> cache_index;
        std::vector<const int32_t*> tables;
        std::vector<Bf16> rows;
        for (const Token* token : tokens) {
            positions.push_back(token->position);
            cache_index.push_back(
                cache_row(*token->blocks, static_cast<uint32_t>(token->position)));
            tables.push_back(token->blocks->data());
            rows.insert(rows.end(), token->residual.begin(), token->residual.end());
        }
        half_.attention(1,
                        {.num_tokens = tokens.size(),
                         .positions = positions.data(),
                         .cache_index = cache_index.data(),
                         .block_tables = tables.data()},
                        cache,
                        ops::make_rows(rows.data(), tokens.size(), kHidden),
                        workspace_,
                        serial_);
        std::vector<std::vector<Bf16>> out;
        for (size_t t = 0; t < tokens.size(); ++t) {
            const auto begin = rows.begin() + static_cast<std::ptrdiff_t>(t * kHidden);
            out.emplace_back(begin, begin + kHidden);
        }
        return out;
    }

    KvCache make_cache() { return KvCache::create(kv_shape(half_.config()), 512).value(); }

    test::TemporaryDirectory directory_;
    ModelFiles files_;
    AttentionHalf half_;
    AttentionWorkspace workspace_;
    ops::SerialParallel serial_;
};

// Goal: a row depends on its own sequence only, not on who is in the micro-batch, how the sequence
// is cut, or which blocks it got. Method: two sequences token by token over one cache, then mixed
// and in chunks over another with other blocks. Oracle: equal bits.
TEST_F(AttentionHalfTest, MixedChunksGiveTheBitsOfOneTokenAtATime) {
    const std::vector<int32_t> blocks_a = {0, 1};
    const std::vector<int32_t> blocks_b = {2, 3};
    const std::vector<int32_t> other_a = {6, 1};
    const std::vector<int32_t> other_b = {7, 4};
    const auto a = sequence(90, 1, blocks_a);
    const auto b = sequence(75, 2, blocks_b);
    const KvCache cache = make_cache();
    std::vector<std::vector<Bf16>> alone_a;
    std::vector<std::vector<Bf16>> alone_b;
    for (const Token& token : a) alone_a.push_back(attend({&token}, cache)[0]);
    for (const Token& token : b) alone_b.push_back(attend({&token}, cache)[0]);

    auto mixed_a = sequence(90, 1, other_a);
    auto mixed_b = sequence(75, 2, other_b);
    const KvCache other = make_cache();
    size_t done_a = 0;
    size_t done_b = 0;
    for (const size_t chunk : {50, 1, 13, 26}) {
        std::vector<const Token*> batch;
        const size_t end_a = std::min(done_a + chunk, mixed_a.size());
        const size_t end_b = std::min(done_b + 20, mixed_b.size());
        // B's tokens go first and A's follow: the order of sequences in a batch is free.
        for (size_t t = done_b; t < end_b; ++t) batch.push_back(&mixed_b[t]);
        for (size_t t = done_a; t < end_a; ++t) batch.push_back(&mixed_a[t]);
        const auto rows = attend(batch, other);
        for (size_t t = done_b; t < end_b; ++t) EXPECT_EQ(rows[t - done_b], alone_b[t]) << t;
        for (size_t t = done_a; t < end_a; ++t) {
            EXPECT_EQ(rows[end_b - done_b + t - done_a], alone_a[t]) << t;
        }
        done_a = end_a;
        done_b = end_b;
    }
    EXPECT_EQ(done_a, a.size());
    EXPECT_EQ(done_b, b.size());
}

TEST_F(AttentionHalfTest, AReusedCacheLeavesNoTrace) {
    const std::vector<int32_t> blocks = {3};
    const auto tokens = sequence(40, 5, blocks);
    std::vector<const Token*> batch;
    for (const Token& token : tokens) batch.push_back(&token);
    const KvCache fresh = make_cache();
    const auto expected = attend(batch, fresh);
    const KvCache used = make_cache();
    const KvLayer layer = used.layer(1);
    // 0xff in every byte is a bf16 NaN.
    std::memset(layer.data, 0xff, layer.num_slots * layer.bytes_per_token);
    EXPECT_EQ(attend(batch, used), expected);
}

TEST_F(AttentionHalfTest, RouterChoosesDistinctExpertsWithTheScaledSum) {
    const std::vector<int32_t> blocks = {0};
    const auto tokens = sequence(16, 6, blocks);
    std::vector<Bf16> residual;
    for (const Token& token : tokens) {
        residual.insert(residual.end(), token.residual.begin(), token.residual.end());
    }
    std::vector<Bf16> x(16 * kHidden);
    std::vector<int32_t> ids(16 * 3, -7);
    std::vector<float> weights(16 * 3);
    half_.pre_ffn(2,
                  ops::make_rows(std::as_const(residual).data(), 16, kHidden),
                  {ops::make_rows(x.data(), 16, kHidden), {ids.data(), weights.data()}},
                  workspace_,
                  serial_);
    for (size_t t = 0; t < 16; ++t) {
        const int32_t* row = &ids[3 * t];
        EXPECT_TRUE(row[0] != row[1] && row[1] != row[2] && row[0] != row[2]);
        for (size_t k = 0; k < 3; ++k) {
            EXPECT_GE(row[k], 0);
            EXPECT_LT(row[k], 8);
        }
        // norm_topk_prob, then routed_scaling_factor 2.5.
        EXPECT_NEAR(weights[3 * t] + weights[3 * t + 1] + weights[3 * t + 2], 2.5f, 1e-5f);
        EXPECT_FALSE(is_poisoned(&weights[3 * t]));
    }
    EXPECT_EQ(half_.num_shared(2), 1u);
    EXPECT_EQ(half_.num_routed(2), 8u);
}

TEST_F(AttentionHalfTest, ADenseLayerIsOneExpertThatEveryTokenSelects) {
    const std::vector<Bf16> residual(2 * kHidden, ops::from_float(0.5f));
    std::vector<Bf16> x(2 * kHidden);
    std::vector<int32_t> ids(6, -7);
    std::vector<float> weights(6, 9);
    half_.pre_ffn(0,
                  ops::make_rows(residual.data(), 2, kHidden),
                  {ops::make_rows(x.data(), 2, kHidden), {ids.data(), weights.data()}},
                  workspace_,
                  serial_);
    EXPECT_THAT(ids, ElementsAre(0, -1, -1, 0, -1, -1));
    EXPECT_THAT(weights, ElementsAre(1, 0, 0, 1, 0, 0));
    EXPECT_EQ(half_.num_shared(0), 0u);
    EXPECT_EQ(half_.num_routed(0), 1u);
}

TEST_F(AttentionHalfTest, ANanInOneRowPoisonsThatRowOnly) {
    std::vector<Bf16> residual(3 * kHidden, ops::from_float(0.5f));
    residual[kHidden] = ops::from_float(NAN);
    std::vector<Bf16> x(3 * kHidden);
    std::vector<int32_t> ids(9);
    std::vector<float> weights(9);
    half_.pre_ffn(1,
                  ops::make_rows(std::as_const(residual).data(), 3, kHidden),
                  {ops::make_rows(x.data(), 3, kHidden), {ids.data(), weights.data()}},
                  workspace_,
                  serial_);
    EXPECT_FALSE(is_poisoned(&weights[0]));
    EXPECT_TRUE(is_poisoned(&weights[3]));
    EXPECT_FALSE(is_poisoned(&weights[6]));
    EXPECT_THAT(std::vector<int32_t>(ids.begin() + 3, ids.begin() + 6), ElementsAre(0, 1, 2));
}

// Goal: whoever routes, the choice is the same. Method: the half that routes; then one that leaves
// it, whose rows go through a Router of their own, two at a time. Oracle: equal ids and equal bits
// of rows and weights; the half that leaves it wrote no routing of an MoE layer.
TEST_F(AttentionHalfTest, ARouterElsewhereChoosesTheSame) {
    const auto half =
        AttentionHalf::load(files_, ops::best_numeric_class(), RouterUse::kLeave).value();
    const Router router = Router::load(files_, ops::best_numeric_class()).value();
    EXPECT_TRUE(half.is_routed(0));
    EXPECT_FALSE(half.is_routed(1));
    EXPECT_TRUE(half_.is_routed(1));
    EXPECT_FALSE(router.routes(0));
    const std::vector<int32_t> blocks = {0};
    std::vector<Bf16> residual;
    for (const Token& token : sequence(16, 6, blocks)) {
        residual.insert(residual.end(), token.residual.begin(), token.residual.end());
    }
    const auto rows = ops::make_rows(std::as_const(residual).data(), 16, kHidden);
    std::vector<Bf16> x[2] = {std::vector<Bf16>(16 * kHidden), std::vector<Bf16>(16 * kHidden)};
    std::vector<int32_t> ids[2] = {std::vector<int32_t>(48, -7), std::vector<int32_t>(48, -7)};
    std::vector<float> weights[2] = {std::vector<float>(48), std::vector<float>(48)};
    const auto input = [&](int i) {
        return FfnInput{ops::make_rows(x[i].data(), 16, kHidden),
                        {ids[i].data(), weights[i].data()}};
    };
    half_.pre_ffn(1, rows, input(0), workspace_, serial_);
    half.pre_ffn(1, rows, input(1), workspace_, serial_);
    EXPECT_THAT(ids[1], Each(-7));
    const ops::Workspace workspace(router.workspace_bytes(2, 1));
    for (size_t t = 0; t < 16; t += 2) {
        router.route(1,
                     ops::make_rows(std::as_const(x[1]).data(), 16, kHidden).slice(t, 2),
                     {&ids[1][3 * t], &weights[1][3 * t]},
                     workspace.bytes(),
                     serial_);
    }
    EXPECT_EQ(ids[0], ids[1]);
    EXPECT_EQ(std::memcmp(x[0].data(), x[1].data(), 16 * kHidden * sizeof(Bf16)), 0);
    EXPECT_EQ(std::memcmp(weights[0].data(), weights[1].data(), 48 * sizeof(float)), 0);
}

}  // namespace
}  // namespace afd::model
