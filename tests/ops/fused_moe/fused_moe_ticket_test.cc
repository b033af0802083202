// SPDX-License-Identifier: Apache-2.0

// Tickets of a layer whose rows and results arrive when the test says so: what the driver asks of
// its PrepareFinalize, in which order, and what it does when something is late, fails or is
// dropped.

#include <gtest/gtest.h>

#include "ops/fused_moe/fused_moe.h"
#include "ops/fused_moe/parts/grouped_experts.h"
#include "tests/ops/fused_moe/fused_moe_case.h"

namespace afd::ops {
namespace {

using test::RandomMatrix;
using test::layer::config;
using test::layer::kHidden;
using test::layer::kPerLayer;
using test::layer::Model;
using test::layer::Tokens;

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
    ActivationMetadata metadata(const Ticket&) const override {
        return {.total = Count(0), .expert_counts = no_rows_, .source_prefix = no_rows_};
    }
    Result<> finalize_async(const Ticket&, const ExpertsOutput&) override {
        calls.push_back("finalize_async");
        return {};
    }
    void shared_rows_written(const Ticket&, size_t num_tokens) override {
        calls.push_back("shared " + std::to_string(num_tokens));
    }
    bool finalized(const Ticket&) const override { return results_arrived; }
    Result<> finalize(Ticket&& ticket,
                      const TopKWeightAndReduce& reduce,
                      Rows<Bf16>,
                      Parallel&) override {
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
    std::vector<int32_t> no_rows_ = {0, 0};
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

TEST(FusedMoeTicket, RemoteExpertsAreReadyWhenTheResultsAre) {
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
TEST(FusedMoeTicket, ASharedStageRunsInPartsThatThePartHearsOf) {
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

TEST(FusedMoeTicket, DroppingATicketCancelsItOnceAndMovingItDoesNot) {
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

TEST(FusedMoeTicket, AFailedFinalizeEndsTheTicketWithItsError) {
    SerialParallel serial;
    ScriptedPrepareFinalize scripted(kScriptedRemote);
    scripted.fails = true;
    scripted.results_arrived = true;
    RemoteExperts remote(kGroupedBf16);
    FusedMoe moe = FusedMoe::compose(scripted, remote, config(), serial).value();
    const Tokens tokens(3, 16);
    RandomMatrix out(3, kHidden, 1);
    const Result<> result = moe.apply(tokens.input(0), out.mutable_rows());
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code, Code::kDeadlineExceeded);
    EXPECT_EQ(scripted.calls, (Calls{"prepare 0", "finalize_async", "finalize delegate"}));
}

TEST(FusedMoeTicket, LocalExpertsRunWhenTheirRowsArrive) {
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
    const Result<> late = moe.wait(unready, std::chrono::microseconds(50));
    ASSERT_FALSE(late.ok());
    EXPECT_EQ(late.error().code, Code::kDeadlineExceeded);
    EXPECT_EQ(late.error().message,
              "micro_batch 0 of layer 0: scripted did not bring its rows within 50 us");
    const Result<> early = moe.finish(std::move(unready), out.mutable_rows());
    ASSERT_FALSE(early.ok());
    EXPECT_EQ(early.error().message,
              "micro_batch 0 of layer 0: its rows have not arrived; finish() needs advance() to "
              "have run the experts");
}

}  // namespace
}  // namespace afd::ops
