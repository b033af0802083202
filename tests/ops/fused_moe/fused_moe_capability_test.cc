// SPDX-License-Identifier: Apache-2.0

#include "ops/fused_moe/capability.h"

#include <gtest/gtest.h>

#include "ops/fused_moe/fused_moe.h"
#include "ops/fused_moe/parts/grouped_experts.h"
#include "ops/fused_moe/parts/local_prepare_finalize.h"
#include "ops/fused_moe/plan/registry.h"
#include "tests/ops/fused_moe/moe_matrix.h"

namespace afd::ops {
namespace {

FusedMoeConfig legal_config() {
    return {.hidden = 50,
            .num_experts = 6,
            .top_k = 3,
            .num_shared = 1,
            .max_num_tokens = 512,
            .num_micro_batches = 2};
}

constexpr PrepareFinalizeCapability kRemote{
    .name = "remote",
    .activation_format = ActivationFormat::kGrouped,
    .is_remote = true,
    .is_asynchronous = true,
    .reduces = 0,
    .delegate = WeightAndReduceKind::kDelegate,
};

// Records of parts that do not exist, to exercise every reason of a refused composition.
TEST(Capability, EveryIllegalCombinationIsRefusedWithItsReason) {
    const auto reason = [](const Result<>& result) {
        return result.ok() ? std::string("ok") : result.error().message;
    };
    EXPECT_EQ(reason(check(legal_config())), "ok");
    FusedMoeConfig bad = legal_config();
    bad.top_k = 65;
    EXPECT_EQ(reason(check(bad)), "top_k is 65; allowed are 1 ... 64");
    bad = legal_config();
    bad.num_shared = 5;
    EXPECT_EQ(reason(check(bad)), "num_shared is 5; allowed are 0 ... 4");
    bad = legal_config();
    bad.activation = ExpertActivation::kGelu;
    const ExpertsCapability silu = narrowed(kGroupedBf16, ExpertActivation::kSilu, false);
    EXPECT_EQ(reason(check(kGroupedBf16, bad)), "ok");
    EXPECT_EQ(reason(check(silu, bad)),
              "grouped_bf16 does not serve activation gelu; it serves silu");
    bad = legal_config();
    bad.bias = ExpertBias::kPresent;
    EXPECT_EQ(reason(check(silu, bad)),
              "grouped_bf16 does not serve bias present; it serves absent");
    bad = legal_config();
    bad.quantisation = ExpertQuantisation::kInt8;
    EXPECT_EQ(reason(check(kGroupedBf16, bad)),
              "grouped_bf16 does not serve quantisation int8; it serves none");

    PrepareFinalizeCapability windows = kRemote;
    windows.max_in_flight = 1;
    EXPECT_EQ(reason(check(windows, legal_config())),
              "remote holds 1 tickets in flight; num_micro_batches is 2");
    const RemoteExperts remote(kGroupedBf16);
    EXPECT_EQ(reason(check_pair(windows, kGroupedBf16)),
              "remote sends the rows to other processes, but grouped_bf16 runs in this one; "
              "compose it with RemoteExperts");
    EXPECT_EQ(reason(check_pair(LocalPrepareFinalize::kCapability, remote.capability())),
              "local keeps the rows in this process, but grouped_bf16 runs in others");
    EXPECT_EQ(reason(check_pair(windows, remote.capability())), "ok");
    windows.max_num_tokens_per_rank = RankCapacity(100);
    windows.max_in_flight = 0;
    EXPECT_EQ(reason(check(windows, legal_config())),
              "remote takes 100 tokens of a rank; max_num_tokens is 512");

    PrepareFinalizeCapability batched{.name = "batched",
                                      .activation_format = ActivationFormat::kBatched};
    EXPECT_EQ(reason(check(batched, legal_config())),
              "batched is batched, so num_dispatchers and max_num_tokens_per_rank must be set; "
              "they are 1 and 0");
    EXPECT_EQ(reason(check_pair(batched, kGroupedBf16)),
              "batched gives activations in format batched, but grouped_bf16 takes standard, "
              "grouped");
    ExpertsCapability unusual = kGroupedBf16;
    unusual.weight_and_reduce = WeightAndReduceKind::kNaiveBatched;
    EXPECT_EQ(reason(check_pair(LocalPrepareFinalize::kCapability, unusual)),
              "local cannot execute the weight-and-reduce naive_batched that grouped_bf16 leaves "
              "to it; it executes no_op, contiguous");
    unusual.is_remote = true;
    EXPECT_EQ(reason(check_pair(windows, unusual)),
              "remote cannot execute the weight-and-reduce naive_batched that grouped_bf16 "
              "leaves to it; it executes only its own");

    unusual.supports_chunking = false;
    FusedMoeConfig chunked = legal_config();
    chunked.max_chunk_tokens = 8;
    EXPECT_EQ(reason(check(unusual, chunked)),
              "grouped_bf16 does not take chunks of a micro-batch; max_chunk_tokens is 8 and must "
              "be 0");
    EXPECT_EQ(reason(check(kRemote, chunked)),
              "remote sends whole micro-batches to other processes; max_chunk_tokens is 8 and "
              "must be 0");
    batched.max_num_tokens_per_rank = RankCapacity(512);
    EXPECT_EQ(reason(check(batched, chunked)),
              "batched gives batched activations, whose capacity bounds a call already; "
              "max_chunk_tokens is 8 and must be 0");
}

// A weight on the input is refused where a row has several, where it comes too late, and where a
// row that carries none would get it.
TEST(Capability, WeightsOnTheInputAreRefusedUnlessEveryRowHasOne) {
    FusedMoeConfig top_1 = legal_config();
    top_1.apply_router_weight_on_input = true;
    EXPECT_EQ(check(top_1).error().code, Code::kInvalidArgument);
    EXPECT_EQ(check(top_1).error().message,
              "apply_router_weight_on_input is true; only with top_k 1 has a row one weight, and "
              "top_k is 3");
    top_1.top_k = 1;
    EXPECT_EQ(check(top_1).error().message,
              "apply_router_weight_on_input is true; shared experts take the row without a weight, "
              "but num_shared is 1 and their slots get the rows of the others; has_shared_stage "
              "must be true, or num_shared 0");
    top_1.has_shared_stage = true;
    EXPECT_TRUE(check(top_1).ok());
    top_1.has_shared_stage = false;
    top_1.num_shared = 0;
    EXPECT_TRUE(check(top_1).ok());
    EXPECT_TRUE(check(LocalPrepareFinalize::kCapability, top_1).ok());
    const auto refused = check(kRemote, top_1);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, Code::kFailedPrecondition);
    EXPECT_EQ(refused.error().message,
              "remote sends rows before their weights are chosen; apply_router_weight_on_input "
              "must be false");
    top_1.needs_routing = true;
    EXPECT_EQ(check(top_1).error().message,
              "apply_router_weight_on_input is true; the weights must be there before the rows "
              "leave, so needs_routing must be false");
}

std::string smooth_refusal(std::string_view part) {
    return std::string(part) +
           " quantises rows without smooth scales, but experts of grouped_int8 have some; "
           "dispatch_dtype is int8 and must be bf16 or fp8";
}

// Goal: no expert with smooth scales gets int8 rows that lack them. Method: int8 experts, one of
// them with such scales, behind every part of the registry. Oracle: parts within a process, which
// quantise a row once for all experts, are refused for int8 rows only; those between processes,
// which quantise it for each expert, are not.
TEST(Capability, Int8RowsThatWouldLackTheSmoothScalesOfTheirExpertsAreRefused) {
    const test::MatrixModel model(ExpertQuantisation::kInt8);
    test::MatrixShard shard = model.whole();
    GroupedExperts plain(shard.table, shard.experts_per_layer);
    shard.table.set_smooth(3, std::vector<float>(test::kMatrixHidden, 2.0f));
    GroupedExperts smooth(shard.table, shard.experts_per_layer);
    EXPECT_FALSE(plain.capability().has_smooth_scales);
    EXPECT_TRUE(smooth.capability().has_smooth_scales);
    FusedMoeConfig config = test::matrix_config(ExpertQuantisation::kInt8);
    for (const PrepareFinalizeEntry& entry : prepare_finalize_parts()) {
        const PrepareFinalizeCapability record = record_for(*entry.capability, config);
        ExpertsCapability part = smooth.capability();
        part.is_remote = record.is_remote;
        part.activation_formats = bit(record.activation_format);
        for (const RowDtype dtype : {RowDtype::kBf16, RowDtype::kInt8, RowDtype::kFp8}) {
            if ((record.dispatch_dtypes & bit(dtype)) == 0) continue;
            config.dispatch_dtype = dtype;
            const auto checked = check_composition(record, part, config);
            const bool lacks_them = dtype == RowDtype::kInt8 && !record.is_remote;
            EXPECT_EQ(checked.ok() ? "" : checked.error().message,
                      lacks_them ? smooth_refusal(record.name) : "")
                << record.name << " " << name_of(dtype);
        }
    }
    config.dispatch_dtype = RowDtype::kInt8;
    SerialParallel serial;
    LocalPrepareFinalize local(config, serial);
    EXPECT_EQ(FusedMoe::compose(local, smooth, config, serial).error().message,
              smooth_refusal("local"));
    EXPECT_TRUE(FusedMoe::compose(local, plain, config, serial).ok());
}

// Goal: two_phase is not composed for sizes of which its operators refuse every call. Method: the
// largest that they take, and one more.
TEST(Capability, TwoPhaseTakesTheRanksAndExpertsOfItsOperators) {
    const auto reason = [](const FusedMoeConfig& config) {
        const auto checked = check_composition(*find_prepare_finalize("two_phase").value(),
                                               *find_experts("grouped_bf16").value(),
                                               config);
        return checked.ok() ? std::string("ok") : checked.error().message;
    };
    FusedMoeConfig config = legal_config();
    config.num_ranks = 1024;
    EXPECT_EQ(reason(config), "ok");
    config.num_ranks = 1025;
    EXPECT_EQ(reason(config),
              "two_phase spreads experts over 1024 ranks at most; num_ranks is 1025");
    config.num_ranks = 3;
    config.num_experts = 3 * 65536 - 1;
    EXPECT_EQ(reason(config), "ok");
    config.num_shared = 2;
    EXPECT_EQ(reason(config),
              "two_phase takes 65536 experts of a rank at most; num_experts 196607 and num_shared "
              "2 over num_ranks 3 are 65537");
    // Nobody else lays experts out over these ranks.
    EXPECT_TRUE(check(LocalPrepareFinalize::kCapability, config).ok());
}

// However the scales get into the table.
TEST(ExpertTable, KnowsOfTheSmoothScalesThatAnExpertBrings) {
    const test::MatrixModel model(ExpertQuantisation::kInt8);
    ExpertTable table(2, test::kMatrixHidden);
    table.set(0, model.expert(0, 0).pack());
    EXPECT_FALSE(table.has_smooth());
    PackedExpert expert = model.expert(0, 1).pack();
    expert.smooth.assign(test::kMatrixHidden, 2.0f);
    table.set(1, std::move(expert));
    EXPECT_TRUE(table.has_smooth());
}

}  // namespace
}  // namespace afd::ops
