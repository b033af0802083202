// SPDX-License-Identifier: Apache-2.0
//
// What a composition reserves: the planner's bytes.

#include <gtest/gtest.h>

#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <optional>
#include <string>

#include "ops/fused_moe/fused_moe.h"
#include "ops/fused_moe/plan/between_processes.h"
#include "ops/fused_moe/plan/moe_plan.h"
#include "proto/sanitizers.h"
#include "tests/counted_allocations.h"
#include "tests/ops/fused_moe/moe_compositions.h"

namespace afd::ops {
namespace {

void expect_reserved_as_planned(const MoePair& pair, FusedMoeConfig config, Int4Rows int4_rows) {
    test::MatrixShard shard = test::matrix_model(pair.quantisation).with_shared(config.num_shared);
    shard.table.set_int4_rows(int4_rows);
    SerialParallel serial;
    const MoeLimits limits{.config = config,
                           .intermediate = test::MatrixKind().intermediate,
                           .num_layers = test::kMatrixLayers,
                           .int4_rows = int4_rows};
    const MoePlan plan = plan_moe(pair, limits).value();
    const auto experts = pair.experts->make(shard.setup());
    const auto check = [&](const FusedMoeConfig& of, const MoeMemory& planned) {
        const std::string name = test::name_of_composition(pair, of) + ", int4 with rows of " +
                                 std::string(name_of(int4_rows));
        const uint64_t before = afd::test::num_allocated_bytes();
        const auto prepare_finalize = pair.prepare_finalize->make(of, serial);
        const FusedMoe moe = FusedMoe::compose(*prepare_finalize, *experts, of, serial).value();
        const uint64_t allocated = afd::test::num_allocated_bytes() - before;
        EXPECT_EQ(planned.dispatch, Capacity(prepare_finalize->reserved_bytes())) << name;
        EXPECT_EQ(planned.driver, Capacity(moe.reserved_bytes())) << name;
        EXPECT_LE(allocated, planned.total().value() + 8192) << name;
    };
    check(config, plan.bounded);
    config.row_fraction = 1.0;
    check(config, plan.worst_case);
}

// Goal: the planner's figures are what is reserved, and nothing of size is allocated beside it.
// Oracle: the bytes of the workspaces that the parts and the driver hold; and what the program asks
// operator new for meanwhile, which serves the smaller workspaces and tables of a few entries.
TEST(MoePlan, WhatIsPlannedIsWhatComposeReserves) {
    const size_t count =
        test::for_each_composition([](const MoePair& pair, const FusedMoeConfig& config) {
            expect_reserved_as_planned(pair, config, Int4Rows::kBf16);
            if (pair.quantisation == ExpertQuantisation::kInt4) {
                expect_reserved_as_planned(pair, config, Int4Rows::kInt8);
            }
        });
    EXPECT_GT(count, 100u);
}

// Of int4 experts that take int8 rows: values, scales, sums and arranged rows beside the bf16 ones.
TEST(MoePlan, Int8RowsOfInt4ExpertsTakeMore) {
    const MoePair pair{find_prepare_finalize("local").value(),
                       find_experts("grouped_int4").value(),
                       ExpertQuantisation::kInt4};
    MoeLimits limits{.config = {.hidden = 2048,
                                .num_experts = 64,
                                .top_k = 8,
                                .max_num_tokens = 1024,
                                .quantisation = ExpertQuantisation::kInt4},
                     .intermediate = 1408};
    const MoeMemory bf16 = plan_moe(pair, limits).value().worst_case;
    limits.int4_rows = Int4Rows::kInt8;
    const MoeMemory int8 = plan_moe(pair, limits).value().worst_case;
    EXPECT_EQ(int8.dispatch, bf16.dispatch);
    EXPECT_GE(int8.driver.value(), bf16.driver.value() + 1024 * 8 * (2 * 2048 + 8));
}

// Sanitizers map memory of their own, beyond any limit.
#if !AFD_SANITIZED

// Until it is destroyed, the process can map so many bytes more.
class MemoryLimit {
  public:
    explicit MemoryLimit(size_t bytes) {
        size_t pages = 0;
        std::ifstream("/proc/self/statm") >> pages;
        EXPECT_EQ(::getrlimit(RLIMIT_AS, &before_), 0);
        const rlimit limit{.rlim_cur = pages * static_cast<size_t>(::getpagesize()) + bytes,
                           .rlim_max = before_.rlim_max};
        EXPECT_EQ(::setrlimit(RLIMIT_AS, &limit), 0);
    }
    ~MemoryLimit() { EXPECT_EQ(::setrlimit(RLIMIT_AS, &before_), 0); }
    MemoryLimit(const MemoryLimit&) = delete;
    MemoryLimit& operator=(const MemoryLimit&) = delete;

  private:
    rlimit before_ = {};
};

// Goal: sizes that check() allows and this machine cannot hold cost their caller an error, not the
// process. Method: parts of a small configuration, composed for the largest ones within 1 GiB.
TEST(FusedMoe, MemoryThatIsNotThereIsRefusedByField) {
    const FusedMoeConfig small = test::matrix_config(ExpertQuantisation::kNone);
    const test::MatrixShard shard =
        test::matrix_model(small.quantisation).with_shared(small.num_shared);
    SerialParallel serial;
    const auto prepare_finalize = find_prepare_finalize("local").value()->make(small, serial);
    const auto experts = find_experts("grouped_bf16").value()->make(shard.setup());
    const auto refusal = [&](const FusedMoeConfig& config) {
        const MemoryLimit limit(size_t{1} << 30);
        const auto composed = FusedMoe::compose(*prepare_finalize, *experts, config, serial);
        EXPECT_FALSE(composed.ok());
        if (composed.ok()) return std::string("ok");
        EXPECT_EQ(composed.error().code, Code::kResourceExhausted);
        return composed.error().message;
    };
    FusedMoeConfig config = small;
    config.num_experts = INT32_MAX;
    std::string message = refusal(config);
    EXPECT_TRUE(message.starts_with("num_experts is 2147483647; there is no memory for the "))
        << message;
    config = small;
    config.max_num_tokens = 30'000'000;
    message = refusal(config);
    EXPECT_TRUE(message.starts_with("max_num_tokens is 30000000; there is no memory for the "))
        << message;
    EXPECT_TRUE(FusedMoe::compose(*prepare_finalize, *experts, small, serial).ok());
}

#endif

// Goal: less than the worst case takes less memory, in every composition.
TEST(MoePlan, AFractionOfTheRowsTakesAFractionOfTheBytes) {
    for (const char* name : {"local", "local_batched", "two_phase"}) {
        for (const RowOverflow overflow : {RowOverflow::kBackpressure, RowOverflow::kChunk}) {
            FusedMoeConfig config{.hidden = 2048,
                                  .num_experts = 64,
                                  .top_k = 8,
                                  .max_num_tokens = 1024,
                                  .num_micro_batches = 4};
            config.row_fraction = 0.25;
            config.overflow = overflow;
            const bool is_batched = std::string(name) == "local_batched";
            const MoePair pair{find_prepare_finalize(name).value(),
                               find_experts(is_batched ? "batched_bf16" : "grouped_bf16").value()};
            const MoePlan plan =
                plan_moe(pair, {.config = config, .intermediate = 1408, .num_layers = 2}).value();
            const double ratio = static_cast<double>(plan.bounded.total().value()) /
                                 static_cast<double>(plan.worst_case.total().value());
            // With backpressure the workspaces stay; they are shared by all batches.
            EXPECT_LT(ratio, overflow == RowOverflow::kChunk ? 0.27 : 0.70) << name;
            EXPECT_GT(ratio, 0.24) << name;
        }
    }
}

// Goal: the printed weights are those that a rank holds. Oracle: an expert without a gate has two
// matrices of three; shared experts that the sender runs are none of a rank's.
TEST(MoePlan, WeightsOfARankAreThoseThatItHolds) {
    MoeLimits limits{.config = {.hidden = 1024, .num_experts = 8, .top_k = 2, .num_ranks = 1},
                     .intermediate = 512};
    const size_t gated = rank_weight_bytes(limits).value();
    limits.config.activation = ExpertActivation::kReluSquared;
    EXPECT_EQ(3 * rank_weight_bytes(limits).value(), 2 * gated);
    limits.config.activation = ExpertActivation::kSilu;
    limits.config.num_shared = 2;
    EXPECT_EQ(4 * rank_weight_bytes(limits).value(), 5 * gated);
    limits.config.has_shared_stage = true;
    EXPECT_EQ(rank_weight_bytes(limits).value(), gated);
}

TEST(MoePlan, ConfigurationsThatNoMemoryHoldsAreRefused) {
    const MoePair pair{find_prepare_finalize("local_batched").value(),
                       find_experts("batched_bf16").value()};
    const auto reason = [&](const FusedMoeConfig& config) {
        const auto plan = plan_moe(pair, {.config = config, .intermediate = 64});
        return plan.ok() ? std::string("ok") : plan.error().message;
    };
    FusedMoeConfig config{.hidden = 1u << 20, .num_experts = 4096, .top_k = 8};
    config.max_num_tokens = 1u << 20;
    EXPECT_EQ(reason(config),
              "local_batched numbers its places with 31 bits, at most 2147483647; num_dispatchers "
              "· max_num_tokens_per_rank · experts is 4294967296");
    config.num_experts = 1024;
    EXPECT_EQ(reason(config),
              "local_batched holds rows for 1073741824 places of each micro-batch, which take "
              "2251799813685248 bytes; allowed are 70368744177664");
    config.hidden = INT32_MAX;
    config.max_num_tokens = 31'000'000;
    config.num_micro_batches = 64;
    EXPECT_EQ(reason(config),
              "the rows of max_num_tokens 31000000, hidden 2147483647 and 8 slots take more than "
              "2^63 bytes; allowed are 70368744177664");
    config = {.hidden = 64, .num_experts = 8, .top_k = 2, .max_num_tokens = 64};
    config.row_fraction = 0.0;
    EXPECT_EQ(reason(config), "row_fraction is 0.000000; allowed are numbers above 0 up to 1");
    config.row_fraction = 0.5;
    const MoePair windows{find_prepare_finalize("afd_window").value(),
                          find_experts("grouped_bf16").value()};
    EXPECT_EQ(plan_moe(windows, {.config = config, .intermediate = 64}).error().message,
              "afd_window reserves for whole micro-batches; row_fraction must be 1");
}

TEST(MoePlan, SizesOfTheModelBeyondTheirLimitsAreRefusedByName) {
    const MoePair pair{find_prepare_finalize("local").value(),
                       find_experts("grouped_bf16").value()};
    const FusedMoeConfig config{
        .hidden = 64, .num_experts = 8, .top_k = 8, .max_num_tokens = 1u << 20};
    const auto reason = [&](size_t intermediate, size_t num_layers) {
        const auto plan = plan_moe(
            pair, {.config = config, .intermediate = intermediate, .num_layers = num_layers});
        return plan.ok() ? std::string("ok") : plan.error().message;
    };
    EXPECT_EQ(reason(64, 1), "ok");
    EXPECT_EQ(reason(0, 1), "intermediate is 0; allowed are 1 ... 2147483647");
    EXPECT_EQ(reason(SIZE_MAX, 1),
              "intermediate is 18446744073709551615; allowed are 1 ... 2147483647");
    EXPECT_EQ(reason(64, 0), "num_layers is 0; allowed are 1 ... 2147483647");
    EXPECT_EQ(reason(64, size_t{1} << 61),
              "num_layers is 2305843009213693952; allowed are 1 ... 2147483647");
    // 2^23 rows of 2^22 values are the most.
    EXPECT_EQ(reason(size_t{1} << 22, 1), "ok");
    EXPECT_EQ(reason((size_t{1} << 22) + 1, 1),
              "the rows of max_num_tokens 1048576, intermediate 4194305 and 8 slots take "
              "70368760954880 bytes; allowed are 70368744177664");
}

// Goal: the planner runs where the model would not fit, however large it is. Method: every pair
// with the most experts and layers that there may be, and two_phase with the most that it takes.
// Oracle: what the program asks operator new for; the bytes of local rows, which know no layers.
TEST(MoePlan, ExpertsAreCountedAndNotHeld) {
    MoeLimits limits{.config = {.hidden = 64,
                                .num_experts = INT32_MAX,
                                .top_k = 2,
                                .max_num_tokens = 64,
                                .num_ranks = 1024},
                     .intermediate = INT32_MAX,
                     .num_layers = INT32_MAX};
    // Empty if the pair is refused.
    const auto plan = [&](const MoePair& pair) {
        const uint64_t before = afd::test::num_allocated_bytes();
        const auto planned = plan_moe(pair, limits);
        EXPECT_LT(afd::test::num_allocated_bytes() - before, 65536u)
            << pair.prepare_finalize->capability->name << " + " << pair.experts->capability->name;
        return planned.ok() ? std::optional(planned.value().worst_case.total()) : std::nullopt;
    };
    for (const MoePair& pair : moe_pairs()) {
        limits.config.quantisation = pair.quantisation;
        plan(pair);
    }
    limits.config.quantisation = ExpertQuantisation::kNone;
    const MoePair local{find_prepare_finalize("local").value(),
                        find_experts("grouped_bf16").value()};
    const std::optional<Capacity> most = plan(local);
    EXPECT_TRUE(most.has_value());
    limits.num_layers = 1;
    EXPECT_EQ(plan(local), most);
    limits.config.num_experts = size_t{1024} * 65536;
    const MoePair two_phase{find_prepare_finalize("two_phase").value(),
                            find_experts("grouped_bf16").value()};
    EXPECT_TRUE(plan(two_phase).has_value());
}

// Goal: no segments are planned for rounds that the operators refuse. Method: the largest sizes
// that they take, and one more.
TEST(MoePlan, TwoPhaseRoundsHaveTheRanksAndExpertsOfTheirOperators) {
    FusedMoeConfig config{.hidden = 64, .num_experts = 8, .top_k = 2, .max_num_tokens = 64};
    const auto reason = [&] {
        const auto bytes = two_phase_bytes(config, 64);
        return bytes.ok() ? std::string("ok") : bytes.error().message;
    };
    config.num_ranks = 1024;
    EXPECT_EQ(reason(), "ok");
    config.num_ranks = 1025;
    EXPECT_EQ(reason(), "num_ranks is 1025; two-phase rounds have 1024 at most");
    const MoePair rounds{find_prepare_finalize("afd_two_phase").value(),
                         find_experts("grouped_bf16").value()};
    EXPECT_EQ(plan_moe(rounds, {.config = config, .intermediate = 64}).error().message, reason());
    config.num_ranks = 3;
    config.num_shared = 1;
    config.num_experts = 3 * 65535;
    EXPECT_EQ(reason(), "ok");
    config.num_shared = 2;
    EXPECT_EQ(
        reason(),
        "num_experts 196605 over num_ranks 3, with num_shared 2 at each, are 65537 experts of "
        "a rank; two-phase rounds have 65536 at most");
}

// Rows at one rank, at most: one for each slot of a token, since a token may name an expert twice;
// with batched activations one for each expert that the rank has.
TEST(MoePlan, NamesTheRowsThatOneRankMayGet) {
    FusedMoeConfig config{
        .hidden = 64, .num_experts = 16, .top_k = 8, .num_shared = 1, .max_num_tokens = 100};
    const MoePair pair{find_prepare_finalize("afd_window").value(),
                       find_experts("grouped_bf16").value()};
    config.num_ranks = 4;
    const MoePlan plan = plan_moe(pair, {.config = config, .intermediate = 64}).value();
    EXPECT_EQ(plan.rank_rows_max, Capacity(900));
    EXPECT_EQ(plan.rank_rows_mean, Capacity(300));
    EXPECT_EQ(plan.worst_case.dispatch, Capacity(0));
    const MoePair batched{find_prepare_finalize("local_batched").value(),
                          find_experts("batched_bf16").value()};
    EXPECT_EQ(plan_moe(batched, {.config = config, .intermediate = 64}).value().rank_rows_max,
              Capacity(500));
}

}  // namespace
}  // namespace afd::ops
