// SPDX-License-Identifier: Apache-2.0

#include "ops/fused_moe/fused_moe.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ops/fused_moe/parts/grouped_experts.h"
#include "ops/fused_moe/parts/reference_experts.h"
#include "ops/fused_moe/parts/two_phase_prepare_finalize.h"
#include "tests/ops/fused_moe/fused_moe_case.h"

namespace afd::ops {
namespace {

using test::RandomMatrix;
using test::layer::Composition;
using test::layer::config;
using test::layer::kExperts;
using test::layer::kHidden;
using test::layer::kPerLayer;
using test::layer::kTopK;
using test::layer::Model;
using test::layer::Tokens;
AFD_FOR_EVERY_CLASS(FusedMoeLocal);

// Bound: as for one expert (grouped_ffn_test), summed over the slots' weights, plus the last
// rounding: 5 · 2^-8 of the row's largest sum of absolute contributions.
// Example: fused_moe_modular_kernel: a PrepareFinalize and an Experts part composed and called
TEST_P(FusedMoeLocal, GroupedExpertsMatchReferenceExperts) {
    const Model model(GetParam());
    SerialParallel serial;
    GroupedExperts grouped(model.table, kPerLayer);
    const std::vector<reference::ExpertWeights> weights = model.reference_weights();
    ReferenceExperts plain(weights, kPerLayer, kHidden);
    Composition fast(grouped, config(), serial);
    Composition slow(plain, config(), serial);
    for (const uint32_t layer_id : {0u, 1u}) {
        const Tokens tokens(29, 3 + layer_id);
        const std::vector<Bf16> have = fast.apply(tokens, layer_id);
        const std::vector<Bf16> want = slow.apply(tokens, layer_id);
        for (size_t t = 0; t < 29; ++t) {
            float largest = 0;
            for (size_t c = 0; c < kHidden; ++c) {
                largest = std::max(largest, std::fabs(to_float(want[t * kHidden + c])));
            }
            for (size_t c = 0; c < kHidden; ++c) {
                ASSERT_NEAR(to_float(have[t * kHidden + c]),
                            to_float(want[t * kHidden + c]),
                            5.0f / 256.0f * largest)
                    << t << "," << c;
            }
        }
    }
}

TEST_P(FusedMoeLocal, IsRowInvariant) {
    const Model model(GetParam());
    GroupedExperts grouped(model.table, kPerLayer);
    const Tokens tokens(40, 5);
    test::expect_row_invariant(40, [&](std::span<const size_t> rows, Parallel& parallel) {
        Composition composition(grouped, config(), parallel);
        const std::vector<Bf16> out = composition.apply(tokens.pick(rows), 1);
        return test::bits_of(std::span<const Bf16>(out));
    });
}

TEST_P(FusedMoeLocal, ChunkingDoesNotChangeABit) {
    const Model model(GetParam());
    SerialParallel serial;
    GroupedExperts grouped(model.table, kPerLayer);
    const Tokens tokens(23, 6);
    Composition whole(grouped, config(), serial);
    const std::vector<Bf16> want = whole.apply(tokens, 0);
    for (const size_t chunk : {1u, 7u, 23u, 600u}) {
        FusedMoeConfig chunked = config();
        chunked.max_chunk_tokens = chunk;
        Composition composition(grouped, chunked, serial);
        EXPECT_EQ(composition.apply(tokens, 0), want) << chunk;
    }
}

// Goal: a chunk larger than every call is a whole call. Method: grouped rows, which are cut by
// rows: with the four slots of a token these limits come to 2^64, to the sign bit and to numbers
// below 0. Oracle: the same layer without chunks, in the other format.
TEST(FusedMoe, AChunkBeyondEveryCallIsAWholeCall) {
    const Model model(NumericClass::kPortable);
    SerialParallel serial;
    GroupedExperts grouped(model.table, kPerLayer);
    const Tokens tokens(23, 6);
    const std::vector<Bf16> want = Composition(grouped, config(), serial).apply(tokens, 0);
    for (const size_t chunk : {size_t{1} << 61, size_t{1} << 62, size_t{1} << 63, SIZE_MAX}) {
        FusedMoeConfig chunked = config();
        chunked.max_chunk_tokens = chunk;
        TwoPhasePrepareFinalize two_phase(chunked, 2, serial);
        FusedMoe moe = FusedMoe::compose(two_phase, grouped, chunked, serial).value();
        RandomMatrix out(23, kHidden, 1);
        ASSERT_TRUE(moe.apply(tokens.input(0), out.mutable_rows()).ok()) << chunk;
        EXPECT_EQ(out.values, want) << chunk;
    }
}

TEST(FusedMoe, TicketsOfTwoMicroBatchesFinishInAnyOrder) {
    const Model model(NumericClass::kPortable);
    SerialParallel serial;
    GroupedExperts grouped(model.table, kPerLayer);
    Composition c(grouped, config(), serial);
    const Tokens first(5, 7);
    const Tokens second(9, 8);
    const std::vector<Bf16> want_first = c.apply(first, 0);
    const std::vector<Bf16> want_second = c.apply(second, 1);

    MoeTicket a = c.moe.start(first.input(0), 0).value();
    MoeTicket b = c.moe.start(second.input(1), 1).value();
    EXPECT_TRUE(c.moe.ready(a));
    EXPECT_TRUE(c.moe.ready(b));
    RandomMatrix out_first(5, kHidden, 1);
    RandomMatrix out_second(9, kHidden, 1);
    ASSERT_TRUE(c.moe.finish(std::move(b), out_second.mutable_rows()).ok());
    ASSERT_TRUE(c.moe.finish(std::move(a), out_first.mutable_rows()).ok());
    EXPECT_EQ(out_first.values, want_first);
    EXPECT_EQ(out_second.values, want_second);
}

TEST(FusedMoe, ASlotIsFreeAgainAfterItsTicketIsDropped) {
    const Model model(NumericClass::kPortable);
    SerialParallel serial;
    GroupedExperts grouped(model.table, kPerLayer);
    Composition c(grouped, config(), serial);
    const Tokens tokens(2, 9);
    {
        const Result<MoeTicket> held = c.moe.start(tokens.input(0), 1);
        ASSERT_TRUE(held.ok());
        const Result<MoeTicket> again = c.moe.start(tokens.input(0), 1);
        ASSERT_FALSE(again.ok());
        EXPECT_EQ(again.error().message,
                  "micro_batch 1 is in flight; finish or drop its ticket first");
    }
    EXPECT_TRUE(c.moe.start(tokens.input(0), 1).ok());
}

TEST(FusedMoe, ADenseLayerIsOneExpertThatEveryTokenSelects) {
    const Model model(NumericClass::kPortable);
    SerialParallel serial;
    GroupedExperts grouped(model.table, kPerLayer);
    Composition c(grouped, config(), serial);
    Tokens tokens(4, 10);
    for (size_t i = 0; i < tokens.ids.size(); ++i) {
        tokens.ids[i] = i % kTopK == 0 ? 0 : -1;
        tokens.weights[i] = i % kTopK == 0 ? 1.0f : 0.0f;
    }
    MoeInput input = tokens.input(0);
    input.num_shared = 0;
    RandomMatrix out(4, kHidden, 1);
    ASSERT_TRUE(c.moe.apply(input, out.mutable_rows()).ok());
    RandomMatrix want(4, kHidden, 2);
    const std::vector<ExpertGroup> groups{{0, 4}};
    const Workspace workspace(grouped_ffn_workspace_bytes(model.table, 4, 1));
    ASSERT_TRUE(grouped_ffn({.experts = &model.table,
                             .groups = groups,
                             .x = tokens.x.rows(),
                             .y = want.mutable_rows()},
                            workspace.bytes(),
                            serial)
                    .ok());
    EXPECT_EQ(out.values, want.values);
}

TEST(FusedMoe, AcceptsZeroTokens) {
    const Model model(NumericClass::kPortable);
    SerialParallel serial;
    GroupedExperts grouped(model.table, kPerLayer);
    Composition c(grouped, config(), serial);
    EXPECT_TRUE(c.apply(Tokens(0, 1), 0).empty());
}

TEST(FusedMoe, RefusesInputsBeyondItsConfigurationByNameAndLimit) {
    const Model model(NumericClass::kPortable);
    SerialParallel serial;
    GroupedExperts grouped(model.table, kPerLayer);
    FusedMoeConfig small = config();
    small.max_num_tokens = 3;
    Composition c(grouped, small, serial);
    const auto message = [&](const MoeInput& input, uint32_t micro_batch) {
        const Result<MoeTicket> ticket = c.moe.start(input, micro_batch);
        return ticket.ok() ? std::string("ok") : ticket.error().message;
    };
    const Tokens four(4, 11);
    const Tokens three(3, 11);
    EXPECT_EQ(message(four.input(0), 0), "num_tokens is 4; this layer was composed for at most 3");
    EXPECT_EQ(message(three.input(0), 2),
              "micro_batch is 2; this layer was composed for at most 1");
    EXPECT_EQ(message(three.input(2), 0), "layer_id is 2; experts of layers 0 ... 1 are loaded");
    MoeInput unrouted = three.input(1);
    unrouted.topk_ids = nullptr;
    EXPECT_EQ(message(unrouted, 0),
              "topk_ids is not given; this layer was composed for rows that are routed");
    EXPECT_EQ(message(three.input(1), 0), "ok");
}

// Goal: the profile tells the stages apart and changes no bit; without it nothing is written.
TEST(FusedMoe, AProfileGetsTheTimeOfEveryStageThatRan) {
    const Model model(NumericClass::kPortable);
    SerialParallel serial;
    GroupedExperts grouped(model.table, kPerLayer);
    Composition c(grouped, config(), serial);
    const Tokens tokens(200, 21);
    const std::vector<Bf16> want = c.apply(tokens, 1);
    StageProfile profile;
    c.moe.set_profile(&profile);
    EXPECT_EQ(c.apply(tokens, 1), want);
    for (const MoeStage stage : {MoeStage::kDispatch,
                                 MoeStage::kPermute,
                                 MoeStage::kGemm1,
                                 MoeStage::kGemm2,
                                 MoeStage::kCombine}) {
        EXPECT_GT(profile.at(stage), 0u) << name_of(stage);
    }
    EXPECT_EQ(profile.at(MoeStage::kQuantise), 0u);
    EXPECT_EQ(profile.at(MoeStage::kShared), 0u);
    const StageProfile before = profile;
    c.moe.set_profile(nullptr);
    c.apply(tokens, 1);
    EXPECT_EQ(profile.nanoseconds, before.nanoseconds);
}

TEST(FusedMoe, ASharedStageNeedsAPartThatFitsAndAConfigurationThatAsksForIt) {
    const Model model(NumericClass::kPortable);
    SerialParallel serial;
    GroupedExperts grouped(model.table, kPerLayer);
    RemoteExperts remote(kGroupedBf16);
    FusedMoeConfig staged = config();
    staged.has_shared_stage = true;
    LocalPrepareFinalize local(staged, serial);
    const auto reason = [&](const FusedMoeConfig& wanted, Experts* shared) {
        const auto moe = FusedMoe::compose(local, grouped, wanted, serial, shared);
        return moe.ok() ? std::string("ok") : moe.error().message;
    };
    EXPECT_EQ(reason(staged, &grouped), "ok");
    EXPECT_EQ(reason(staged, nullptr), "has_shared_stage is true, but no part for it was given");
    EXPECT_EQ(reason(config(), &grouped),
              "a part for the shared stage was given, but has_shared_stage is false");
    EXPECT_EQ(reason(staged, &remote),
              "grouped_bf16 cannot be the shared stage; it must run in this process, take standard "
              "activations and leave the reduction to finalize");
    PrepareFinalizeCapability closed = LocalPrepareFinalize::kCapability;
    closed.adds_shared_rows = false;
    EXPECT_EQ(check(closed, staged).error().message,
              "local dispatches the rows of shared experts with the others; has_shared_stage must "
              "be false");
}

TEST(Capability, CompositionReportsTheFirstReason) {
    const Model model(NumericClass::kPortable);
    SerialParallel serial;
    LocalPrepareFinalize local(config(), serial);
    RemoteExperts remote(kGroupedBf16);
    const Result<FusedMoe> moe = FusedMoe::compose(local, remote, config(), serial);
    ASSERT_FALSE(moe.ok());
    EXPECT_EQ(moe.error().message,
              "local keeps the rows in this process, but grouped_bf16 runs in others");
}

// NaiveBatched with an explicit index equals Contiguous over the same rows, in any placement.
TEST(TopKWeightAndReduce, KindsAgreeOnTheSameRows) {
    SerialParallel serial;
    const Tokens tokens(6, 12);
    const RandomMatrix rows(6 * 4, kHidden, 13);
    RandomMatrix contiguous(6, kHidden, 1);
    top_k_weight_and_reduce(WeightAndReduceKind::kContiguous)
        .apply(
            {rows.rows()}, tokens.input(0), kExperts, nullptr, contiguous.mutable_rows(), serial);
    std::vector<size_t> shuffled(24);
    std::vector<int32_t> index(24);
    for (size_t i = 0; i < 24; ++i) {
        shuffled[(i * 7) % 24] = i;
        index[i] = static_cast<int32_t>((i * 7) % 24);
    }
    const RandomMatrix batched = rows.pick(shuffled);
    RandomMatrix out(6, kHidden, 2);
    top_k_weight_and_reduce(WeightAndReduceKind::kNaiveBatched)
        .apply(
            {batched.rows()}, tokens.input(0), kExperts, index.data(), out.mutable_rows(), serial);
    EXPECT_EQ(out.values, contiguous.values);
    RandomMatrix copied(6, kHidden, 3);
    top_k_weight_and_reduce(WeightAndReduceKind::kNoOp)
        .apply({out.rows()}, tokens.input(0), kExperts, nullptr, copied.mutable_rows(), serial);
    EXPECT_EQ(copied.values, out.values);
}

}  // namespace
}  // namespace afd::ops
