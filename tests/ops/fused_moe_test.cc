// SPDX-License-Identifier: Apache-2.0

#include "ops/fused_moe/fused_moe.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ops/combine.h"
#include "ops/fused_moe/grouped_experts.h"
#include "ops/fused_moe/local_prepare_finalize.h"
#include "ops/fused_moe/reference_experts.h"
#include "tests/ops/test_data.h"

namespace afd::ops {
namespace {

using test::RandomMatrix;
AFD_FOR_EVERY_CLASS(FusedMoeLocal);

constexpr size_t kHidden = 50;
constexpr size_t kExperts = 6;
constexpr size_t kPerLayer = kExperts + 1;  // One shared MLP, wider than the routed ones.
constexpr size_t kLayers = 2;
constexpr size_t kTopK = 3;

FusedMoeConfig config() {
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
        const Result<void> result = moe.apply(tokens.input(layer_id), out.mutable_rows());
        EXPECT_TRUE(result.ok());
        return out.values;
    }
};

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

// A part of which the test decides when rows and results arrive; it notes what is asked of it.
class ScriptedPrepareFinalize final : public PrepareFinalize {
  public:
    explicit ScriptedPrepareFinalize(const PrepareFinalizeCapability& capability)
        : capability_(capability) {}

    const PrepareFinalizeCapability& capability() const override { return capability_; }
    Result<Ticket> prepare_async(const MoeInput& input, uint32_t slot) override {
        calls.push_back("prepare " + std::to_string(slot));
        input_ = input;
        local_ids_.assign(input.num_tokens * input.num_slots(), kMaskedSlot);
        return Ticket(this, slot, 77);
    }
    bool ready(const Ticket&) const override { return rows_arrived; }
    Activations activations(const Ticket&) const override {
        if (capability_.is_remote) return RemoteActivations{};
        return StandardActivations{.x = {input_.x},
                                   .layer_id = input_.layer_id,
                                   .num_slots = input_.num_slots(),
                                   .local_ids = local_ids_.data()};
    }
    Result<void> finalize_async(const Ticket&, const ExpertsOutput&) override {
        calls.push_back("finalize_async");
        return {};
    }
    void shared_rows_written(const Ticket&, size_t num_tokens) override {
        calls.push_back("shared " + std::to_string(num_tokens));
    }
    bool finalized(const Ticket&) const override { return results_arrived; }
    Result<void> finalize(Ticket&& ticket, const TopKWeightAndReduce& reduce, Rows<Bf16>) override {
        calls.push_back("finalize " + std::string(name_of(reduce.kind())));
        ticket.release();
        if (fails) return Error{Code::kDeadlineExceeded, "scripted"};
        return {};
    }
    void cancel(uint32_t slot, uint64_t id) override {
        calls.push_back("cancel " + std::to_string(slot) + " " + std::to_string(id));
    }

    std::vector<std::string> calls;
    bool rows_arrived = false;
    bool results_arrived = false;
    bool fails = false;

  private:
    PrepareFinalizeCapability capability_;
    MoeInput input_;
    std::vector<LocalExpert> local_ids_;
};

using Calls = std::vector<std::string>;

constexpr PrepareFinalizeCapability kScriptedRemote{
    .name = "scripted",
    .activation_format = ActivationFormat::kGrouped,
    .is_remote = true,
    .is_asynchronous = true,
    .reduces = 0,
    .delegate = WeightAndReduceKind::kDelegate,
};

TEST(FusedMoe, RemoteExpertsAreReadyWhenTheResultsAre) {
    SerialParallel serial;
    ScriptedPrepareFinalize scripted(kScriptedRemote);
    RemoteExperts remote(kGroupedBf16);
    FusedMoe moe = FusedMoe::compose(scripted, remote, config(), serial).value();
    const Tokens tokens(3, 14);
    RandomMatrix out(3, kHidden, 1);
    MoeTicket ticket = moe.start(tokens.input(0), 1).value();
    EXPECT_EQ(ticket.micro_batch(), 1u);
    EXPECT_FALSE(moe.ready(ticket));
    scripted.results_arrived = true;
    EXPECT_TRUE(moe.ready(ticket));
    ASSERT_TRUE(moe.finish(std::move(ticket), out.mutable_rows()).ok());
    EXPECT_EQ(scripted.calls, (Calls{"prepare 1", "finalize_async", "finalize delegate"}));
}

// Goal: with max_shared_tokens the stage runs so many tokens at each advance(), the part hears of
// them, and what is left at finish() runs there.
TEST(FusedMoe, ASharedStageRunsInPartsThatThePartHearsOf) {
    const Model model(NumericClass::kPortable);
    SerialParallel serial;
    PrepareFinalizeCapability record = kScriptedRemote;
    record.adds_shared_rows = true;
    ScriptedPrepareFinalize scripted(record);
    RemoteExperts remote(kGroupedBf16);
    GroupedExperts shared(model.table, kPerLayer);
    FusedMoeConfig staged = config();
    staged.has_shared_stage = true;
    staged.max_shared_tokens = 2;
    FusedMoe moe = FusedMoe::compose(scripted, remote, staged, serial, &shared).value();
    const Tokens tokens(7, 14);
    RandomMatrix out(7, kHidden, 1);
    MoeTicket ticket = moe.start(tokens.input(1), 0).value();
    scripted.results_arrived = true;
    EXPECT_TRUE(moe.can_advance(ticket));
    EXPECT_FALSE(moe.ready(ticket)) << "shared rows are missing";
    ASSERT_TRUE(moe.advance(ticket).ok());
    EXPECT_EQ(scripted.calls, (Calls{"prepare 0", "finalize_async", "shared 2", "shared 4"}));
    scripted.calls.clear();
    ASSERT_TRUE(moe.finish(std::move(ticket), out.mutable_rows()).ok());
    EXPECT_EQ(scripted.calls, (Calls{"shared 6", "shared 7", "finalize delegate"}));
}

TEST(FusedMoe, DroppingATicketCancelsItOnceAndMovingItDoesNot) {
    SerialParallel serial;
    ScriptedPrepareFinalize scripted(kScriptedRemote);
    RemoteExperts remote(kGroupedBf16);
    FusedMoe moe = FusedMoe::compose(scripted, remote, config(), serial).value();
    const Tokens tokens(3, 15);
    {
        MoeTicket first = moe.start(tokens.input(0), 0).value();
        MoeTicket second = std::move(first);
        EXPECT_FALSE(first.valid());
        EXPECT_TRUE(second.valid());
        EXPECT_EQ(scripted.calls, (Calls{"prepare 0", "finalize_async"}));
    }
    EXPECT_EQ(scripted.calls, (Calls{"prepare 0", "finalize_async", "cancel 0 77"}));
}

TEST(FusedMoe, AFailedFinalizeEndsTheTicketWithItsError) {
    SerialParallel serial;
    ScriptedPrepareFinalize scripted(kScriptedRemote);
    scripted.fails = true;
    scripted.results_arrived = true;
    RemoteExperts remote(kGroupedBf16);
    FusedMoe moe = FusedMoe::compose(scripted, remote, config(), serial).value();
    const Tokens tokens(3, 16);
    RandomMatrix out(3, kHidden, 1);
    const Result<void> result = moe.apply(tokens.input(0), out.mutable_rows());
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code, Code::kDeadlineExceeded);
    EXPECT_EQ(scripted.calls, (Calls{"prepare 0", "finalize_async", "finalize delegate"}));
}

TEST(FusedMoe, LocalExpertsRunWhenTheirRowsArrive) {
    const Model model(NumericClass::kPortable);
    SerialParallel serial;
    ScriptedPrepareFinalize scripted({.name = "scripted", .is_asynchronous = true});
    GroupedExperts grouped(model.table, kPerLayer);
    FusedMoe moe = FusedMoe::compose(scripted, grouped, config(), serial).value();
    const Tokens tokens(3, 17);
    RandomMatrix out(3, kHidden, 1);
    MoeTicket ticket = moe.start(tokens.input(0), 0).value();
    ASSERT_TRUE(moe.advance(ticket).ok());
    EXPECT_EQ(scripted.calls, (Calls{"prepare 0"}));
    scripted.results_arrived = true;
    EXPECT_FALSE(moe.ready(ticket)) << "the experts have not run";
    scripted.rows_arrived = true;
    ASSERT_TRUE(moe.advance(ticket).ok());
    EXPECT_TRUE(moe.ready(ticket));
    ASSERT_TRUE(moe.finish(std::move(ticket), out.mutable_rows()).ok());
    EXPECT_EQ(scripted.calls, (Calls{"prepare 0", "finalize_async", "finalize contiguous"}));

    scripted.rows_arrived = false;
    MoeTicket unready = moe.start(tokens.input(0), 0).value();
    const Result<void> late = moe.wait(unready, std::chrono::microseconds(50));
    ASSERT_FALSE(late.ok());
    EXPECT_EQ(late.error().code, Code::kDeadlineExceeded);
    EXPECT_EQ(late.error().message,
              "micro_batch 0 of layer 0: scripted did not bring its rows within 50 us");
    const Result<void> early = moe.finish(std::move(unready), out.mutable_rows());
    ASSERT_FALSE(early.ok());
    EXPECT_EQ(early.error().message,
              "micro_batch 0 of layer 0: its rows have not arrived; finish() needs advance() to "
              "have run the experts");
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
    const Tokens tokens(6, 12);
    const RandomMatrix rows(6 * 4, kHidden, 13);
    RandomMatrix contiguous(6, kHidden, 1);
    top_k_weight_and_reduce(WeightAndReduceKind::kContiguous)
        .apply({rows.rows()}, tokens.input(0), kExperts, nullptr, contiguous.mutable_rows());
    std::vector<size_t> shuffled(24);
    std::vector<int32_t> index(24);
    for (size_t i = 0; i < 24; ++i) {
        shuffled[(i * 7) % 24] = i;
        index[i] = static_cast<int32_t>((i * 7) % 24);
    }
    const RandomMatrix batched = rows.pick(shuffled);
    RandomMatrix out(6, kHidden, 2);
    top_k_weight_and_reduce(WeightAndReduceKind::kNaiveBatched)
        .apply({batched.rows()}, tokens.input(0), kExperts, index.data(), out.mutable_rows());
    EXPECT_EQ(out.values, contiguous.values);
    RandomMatrix copied(6, kHidden, 3);
    top_k_weight_and_reduce(WeightAndReduceKind::kNoOp)
        .apply({out.rows()}, tokens.input(0), kExperts, nullptr, copied.mutable_rows());
    EXPECT_EQ(copied.values, out.values);
}

}  // namespace
}  // namespace afd::ops
