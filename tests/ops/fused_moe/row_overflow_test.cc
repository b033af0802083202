// SPDX-License-Identifier: Apache-2.0
//
// Calls that need more rows than were reserved.

#include <gtest/gtest.h>

#include "tests/ops/fused_moe/moe_compositions.h"

namespace afd::ops {
namespace {

using test::kMatrixHidden;
using test::MatrixCase;

struct Layer {
    SerialParallel serial;
    test::MatrixShard shard;
    std::unique_ptr<PrepareFinalize> prepare_finalize;
    std::unique_ptr<Experts> experts;
    FusedMoe moe;
    test::RandomMatrix x = test::matrix_tokens();

    Layer(const MoePair& pair, const FusedMoeConfig& config)
        : shard(test::matrix_model(pair.quantisation).with_shared(config.num_shared)),
          prepare_finalize(pair.prepare_finalize->make(config, serial)),
          experts(pair.experts->make(shard.setup())),
          moe(FusedMoe::compose(*prepare_finalize, *experts, config, serial).value()) {}

    Result<std::vector<Bf16>> apply(const MatrixCase& c) {
        std::vector<Bf16> out(c.num_tokens * kMatrixHidden);
        MoeInput input = c.input(x);
        input.num_shared = static_cast<uint32_t>(moe.config().num_shared);
        AFD_TRY(moe.apply(input, make_rows(out.data(), size_t{c.num_tokens}, kMatrixHidden)));
        return out;
    }
};

// Goal: with kChunk and kBackpressure every call goes through, with the bits of the worst case's
// reservation, and with kError it does so or is refused; nothing is dropped.
TEST(RowOverflow, NoPolicyDropsARow) {
    std::vector<MatrixCase> cases;
    for (const uint32_t top_k : {4u, 1u}) {
        for (const test::Routing routing : test::kRoutings) cases.emplace_back(33, top_k, routing);
        cases.emplace_back(257, top_k, test::Routing::kZipf);
        cases.emplace_back(0, top_k, test::Routing::kZipf);
    }
    size_t num_refused = 0;
    test::for_each_composition([&](const MoePair& pair, FusedMoeConfig config) {
        if (pair.experts->capability->name == "reference") return;  // The same dispatch, slower.
        Layer bounded(pair, config);
        const bool may_refuse = config.overflow == RowOverflow::kError;
        const std::string name = test::name_of_composition(pair, config);
        config.row_fraction = 1.0;
        Layer whole(pair, config);
        for (const MatrixCase& c : cases) {
            if (c.top_k > config.top_k) continue;
            const Result<std::vector<Bf16>> have = bounded.apply(c);
            if (may_refuse && !have.ok()) {
                EXPECT_EQ(have.error().code, Code::kResourceExhausted);
                ++num_refused;
                continue;
            }
            ASSERT_TRUE(have.ok()) << name << ": " << c.name() << ": " << have.error().message;
            ASSERT_EQ(have.value(), whole.apply(c).value()) << name << ": " << c.name();
        }
    });
    EXPECT_GT(num_refused, 0u);
}

TEST(RowOverflow, ErrorSaysHowManyTokensFit) {
    FusedMoeConfig config = test::matrix_config(ExpertQuantisation::kNone);
    config.row_fraction = 0.1;  // 26 of 257
    const MatrixCase c(33, 4, test::Routing::kOneExpert);
    Layer batched(
        {find_prepare_finalize("local_batched").value(), find_experts("batched_bf16").value()},
        config);
    const std::string reason =
        "row_fraction 0.100000 reserves rows for 26 of the call's 33 tokens; raise it, or take "
        "overflow chunk";
    EXPECT_EQ(batched.apply(c).error().message, reason);
    // Places are counted by expert: spread over all, the same tokens fit, but for the shared one.
    MatrixCase spread(26, 4, test::Routing::kUniform);
    EXPECT_TRUE(batched.apply(spread).ok());
    Layer local({find_prepare_finalize("local").value(), find_experts("grouped_bf16").value()},
                config);
    EXPECT_EQ(local.apply(c).error().message, reason);
}

TEST(RowOverflow, BackpressureRefusesUntilATicketEnds) {
    FusedMoeConfig config = test::matrix_config(ExpertQuantisation::kNone);
    config.num_micro_batches = 3;
    config.row_fraction = 0.5;  // Two batches.
    config.overflow = RowOverflow::kBackpressure;
    const MatrixCase c(33, 4, test::Routing::kZipf);
    for (const char* name : {"local", "two_phase", "local_batched"}) {
        const bool is_batched = std::string(name) == "local_batched";
        Layer layer({find_prepare_finalize(name).value(),
                     find_experts(is_batched ? "batched_bf16" : "grouped_bf16").value()},
                    config);
        const std::vector<Bf16> want = layer.apply(c).value();
        MoeTicket first = layer.moe.start(c.input(layer.x), 2).value();
        EXPECT_EQ(first.micro_batch(), 2u);
        EXPECT_FALSE(layer.moe.slot_free(2));
        EXPECT_EQ(layer.moe.start(c.input(layer.x), 2).error().message,
                  "micro_batch 2 is in flight; finish or drop its ticket first");
        MoeTicket second = layer.moe.start(c.input(layer.x), 0).value();
        EXPECT_FALSE(layer.moe.slot_free(1));
        const Result<MoeTicket> refused = layer.moe.start(c.input(layer.x), 1);
        ASSERT_FALSE(refused.ok());
        EXPECT_EQ(refused.error().code, Code::kResourceExhausted);
        EXPECT_EQ(refused.error().message,
                  "all 2 batches that row_fraction 0.500000 of 3 micro-batches reserves are in "
                  "flight; start again when one has ended");
        const auto finish = [&](MoeTicket&& ticket) {
            std::vector<Bf16> out(want.size());
            EXPECT_TRUE(layer.moe
                            .finish(std::move(ticket),
                                    make_rows(out.data(), size_t{c.num_tokens}, kMatrixHidden))
                            .ok());
            return out;
        };
        EXPECT_EQ(finish(std::move(second)), want);
        EXPECT_TRUE(layer.moe.slot_free(1));
        MoeTicket third = layer.moe.start(c.input(layer.x), 1).value();
        EXPECT_EQ(finish(std::move(first)), want);
        EXPECT_EQ(finish(std::move(third)), want);
    }
}

}  // namespace
}  // namespace afd::ops
