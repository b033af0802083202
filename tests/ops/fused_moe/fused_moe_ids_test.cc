// SPDX-License-Identifier: Apache-2.0

// Ids as int32 and int64, the synchronous prepare, and the choice of parts by their records.

#include <gtest/gtest.h>

#include "ops/fused_moe/parts/grouped_experts.h"
#include "ops/fused_moe/plan/select_parts.h"
#include "ops/fused_moe/top_k_ids.h"
#include "tests/ops/fused_moe/fused_moe_case.h"

namespace afd::ops {
namespace {

using test::RandomMatrix;
using test::layer::config;
using test::layer::kHidden;
using test::layer::kPerLayer;
using test::layer::kTopK;
using test::layer::Model;
using test::layer::Tokens;

// The local part under a record that asks for int64 ids, and keeps the last call's.
class Int64Ids final : public PrepareFinalize {
  public:
    Int64Ids(const FusedMoeConfig& wanted, Parallel& parallel) : inner_(wanted, parallel) {
        capability_.topk_indices_dtype = IdDtype::kInt64;
    }
    const PrepareFinalizeCapability& capability() const override { return capability_; }
    Result<Ticket> prepare_async(const MoeInput& input, uint32_t slot) override {
        ids.assign(input.topk_ids_int64,
                   input.topk_ids_int64 + size_t{input.num_tokens} * input.top_k);
        return inner_.prepare_async(input, slot);
    }
    bool slot_free(uint32_t slot) override { return inner_.slot_free(slot); }
    bool ready(const Ticket& ticket) const override { return is_ready && inner_.ready(ticket); }
    Activations activations(const Ticket& ticket) const override {
        return inner_.activations(ticket);
    }
    ActivationMetadata metadata(const Ticket& ticket) const override {
        return inner_.metadata(ticket);
    }
    Result<> finalize_async(const Ticket& ticket, const ExpertsOutput& output) override {
        return inner_.finalize_async(ticket, output);
    }
    bool finalized(const Ticket& ticket) const override { return inner_.finalized(ticket); }
    Result<> finalize(Ticket&& ticket,
                      const TopKWeightAndReduce& reduce,
                      Rows<Bf16> out,
                      Parallel& parallel) override {
        return inner_.finalize(std::move(ticket), reduce, out, parallel);
    }
    void cancel(uint32_t slot, uint64_t id) override { inner_.cancel(slot, id); }

    std::vector<int64_t> ids;
    bool is_ready = true;

  private:
    LocalPrepareFinalize inner_;
    PrepareFinalizeCapability capability_ = LocalPrepareFinalize::kCapability;
};

struct IdsLayer {
    Model model{best_numeric_class()};
    SerialParallel serial;
    GroupedExperts experts{model.table, kPerLayer};

    std::vector<Bf16> apply(PrepareFinalize& part,
                            const FusedMoeConfig& wanted,
                            const MoeInput& input) {
        auto moe = FusedMoe::compose(part, experts, wanted, serial);
        RandomMatrix out(input.num_tokens, kHidden, 1);
        const Result<> done = moe.value().apply(input, out.mutable_rows());
        EXPECT_TRUE(done.ok()) << done.error().message;
        return out.values;
    }
};

std::vector<int64_t> int64_of(const Tokens& tokens) {
    return {tokens.ids.begin(), tokens.ids.end()};
}

// Goal: whichever dtype the calls bring and the part asks for, the same bits. Oracle: both int32.
TEST(FusedMoeIds, OfBothDtypesGiveTheSameBitsToEveryPart) {
    IdsLayer layer;
    const Tokens tokens(29, 4);
    const std::vector<int64_t> ids = int64_of(tokens);
    LocalPrepareFinalize narrow(config(), layer.serial);
    const std::vector<Bf16> expected = layer.apply(narrow, config(), tokens.input(1));

    Int64Ids wide(config(), layer.serial);
    EXPECT_EQ(layer.apply(wide, config(), tokens.input(1)), expected);
    EXPECT_EQ(wide.ids, ids);

    FusedMoeConfig wanted = config();
    wanted.topk_indices_dtype = IdDtype::kInt64;
    MoeInput input = tokens.input(1);
    input.topk_ids = nullptr;
    input.topk_ids_int64 = ids.data();
    EXPECT_EQ(layer.apply(narrow, wanted, input), expected);
    wide.ids.clear();
    EXPECT_EQ(layer.apply(wide, wanted, input), expected);
    EXPECT_EQ(wide.ids, ids);
}

// A call that goes through in several parts: each part gets its own ids.
TEST(FusedMoeIds, OfBothDtypesGoThroughInParts) {
    IdsLayer layer;
    const Tokens tokens(29, 5);
    LocalPrepareFinalize whole(config(), layer.serial);
    const std::vector<Bf16> expected = layer.apply(whole, config(), tokens.input(0));
    FusedMoeConfig wanted = config();
    wanted.topk_indices_dtype = IdDtype::kInt64;
    wanted.row_fraction = 0.01;
    wanted.overflow = RowOverflow::kChunk;
    Int64Ids part(wanted, layer.serial);
    const std::vector<int64_t> ids = int64_of(tokens);
    MoeInput input = tokens.input(0);
    input.topk_ids = nullptr;
    input.topk_ids_int64 = ids.data();
    EXPECT_EQ(layer.apply(part, wanted, input), expected);
    EXPECT_LT(part.ids.size(), ids.size());
    EXPECT_TRUE(std::equal(part.ids.rbegin(), part.ids.rend(), ids.rbegin()));
}

// An id that no int32 holds must not become another expert's.
TEST(FusedMoeIds, OutsideInt32MaskTheirSlots) {
    IdsLayer layer;
    Tokens tokens(2, 6);
    std::vector<int64_t> ids = int64_of(tokens);
    for (const size_t at : {size_t{0}, size_t{4}}) {
        ids[at] = at == 0 ? (int64_t{1} << 32) + 3 : -(int64_t{1} << 32) + 2;
        tokens.ids[at] = -1;
    }
    LocalPrepareFinalize part(config(), layer.serial);
    const std::vector<Bf16> expected = layer.apply(part, config(), tokens.input(1));
    FusedMoeConfig wanted = config();
    wanted.topk_indices_dtype = IdDtype::kInt64;
    MoeInput input = tokens.input(1);
    input.topk_ids = nullptr;
    input.topk_ids_int64 = ids.data();
    EXPECT_EQ(layer.apply(part, wanted, input), expected);
}

TEST(FusedMoeIds, OfTheOtherDtypeAreRefused) {
    IdsLayer layer;
    const Tokens tokens(2, 7);
    FusedMoeConfig wanted = config();
    wanted.topk_indices_dtype = IdDtype::kInt64;
    LocalPrepareFinalize part(wanted, layer.serial);
    auto moe = FusedMoe::compose(part, layer.experts, wanted, layer.serial);
    const auto message = [&](const MoeInput& input) {
        const auto started = moe.value().start(input, 0);
        return started.ok() ? std::string("accepted") : started.error().message;
    };
    EXPECT_EQ(message(tokens.input(0)),
              "the ids are int32; this layer was composed for topk_indices_dtype int64");
    MoeInput input = tokens.input(0);
    input.topk_ids = nullptr;
    EXPECT_EQ(message(input),
              "topk_ids_int64 is not given; this layer was composed for rows that are routed");
}

TEST(PrepareFinalizePrepare, WaitsForTheRowsAndNoLongerThanItIsTold) {
    IdsLayer layer;
    const Tokens tokens(3, 8);
    const std::vector<int64_t> ids = int64_of(tokens);
    MoeInput input = tokens.input(0);
    input.topk_ids_int64 = ids.data();
    Int64Ids part(config(), layer.serial);
    {
        const auto ticket = part.prepare(input, 0, std::chrono::microseconds(0));
        ASSERT_TRUE(ticket.ok()) << ticket.error().message;
        EXPECT_FALSE(part.slot_free(0));
        EXPECT_EQ(std::get<StandardActivations>(part.activations(ticket.value())).x.num_rows(), 3u);
    }
    part.is_ready = false;
    const auto late = part.prepare(input, 0, std::chrono::microseconds(10));
    ASSERT_FALSE(late.ok());
    EXPECT_EQ(late.error().message, "local did not bring the rows of slot 0 within 10 us");
    EXPECT_TRUE(part.slot_free(0));
}

std::string selected_names(const Result<SelectedParts>& selected) {
    if (!selected.ok()) return selected.error().message;
    return std::string(selected.value().prepare_finalize->capability->name) + " " +
           std::string(selected.value().experts->capability->name);
}

TEST(SelectParts, TakesTheFirstPairThatServes) {
    FusedMoeConfig wanted = config();
    EXPECT_EQ(selected_names(select_parts(wanted)), "local grouped_bf16");
    wanted.quantisation = ExpertQuantisation::kInt4;
    EXPECT_EQ(selected_names(select_parts(wanted)), "local grouped_int4");
    wanted = config();
    // Without the packed parts the slow one remains.
    EXPECT_EQ(
        selected_names(select_parts(wanted, prepare_finalize_parts(), experts_parts().first(1))),
        "local reference");
    // Where the fast ones do not fit the dispatch, a part with another format of activations does.
    EXPECT_EQ(selected_names(select_parts(
                  wanted, prepare_finalize_parts().subspan(1), experts_parts().subspan(1))),
              "local_batched batched_bf16");
}

TEST(SelectParts, SaysWhyNoPairServes) {
    FusedMoeConfig wanted = config();
    wanted.top_k = 65;
    EXPECT_EQ(selected_names(select_parts(wanted)), "top_k is 65; allowed are 1 ... 64");
    wanted = config();
    wanted.needs_routing = true;
    EXPECT_EQ(selected_names(select_parts(wanted)),
              "no two parts serve the configuration in one process: local takes rows that are "
              "routed already; needs_routing must be false; local_batched takes rows that are "
              "routed already; needs_routing must be false; two_phase takes rows that are routed "
              "already; needs_routing must be false");
    EXPECT_EQ(selected_names(select_parts(config(), prepare_finalize_parts().last(3))),
              "no two parts serve the configuration in one process: there are none");
}

}  // namespace
}  // namespace afd::ops
