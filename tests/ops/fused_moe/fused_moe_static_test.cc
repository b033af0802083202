// SPDX-License-Identifier: Apache-2.0

// Parts that are known at compile time. Oracle: the registry's answer for the same pairs.

#include "ops/fused_moe/static_composition.h"

#include <gtest/gtest.h>

#include "ops/fused_moe/parts/batched_experts.h"
#include "ops/fused_moe/parts/grouped_experts.h"
#include "ops/fused_moe/parts/local_batched_prepare_finalize.h"
#include "ops/fused_moe/parts/local_prepare_finalize.h"
#include "ops/fused_moe/parts/reference_experts.h"
#include "ops/fused_moe/parts/two_phase_prepare_finalize.h"
#include "tests/ops/fused_moe/moe_matrix.h"

namespace afd::ops {
namespace {

template <typename Dispatch, typename Part>
void expect_as_registered() {
    const auto checked =
        check_composition(*find_prepare_finalize(Dispatch::kCapability.name).value(),
                          *find_experts(Part::kCapability.name).value(),
                          test::matrix_config(ExpertQuantisation::kNone));
    EXPECT_EQ(checked.ok(), (Composable<Dispatch, Part>))
        << Dispatch::kCapability.name << " + " << Part::kCapability.name;
}

template <typename Dispatch>
void expect_all_as_registered() {
    expect_as_registered<Dispatch, ReferenceExperts>();
    expect_as_registered<Dispatch, GroupedExperts>();
    expect_as_registered<Dispatch, BatchedExperts>();
}

static_assert(Composable<LocalPrepareFinalize, GroupedExperts>);
static_assert(!Composable<LocalPrepareFinalize, BatchedExperts>);
static_assert(!Composable<LocalBatchedPrepareFinalize, GroupedExperts>);
static_assert(!PrepareFinalizePart<GroupedExperts> && !ExpertsPart<LocalPrepareFinalize>);

TEST(StaticComposition, AFormatThatDoesNotFitDoesNotCompile) {
    expect_all_as_registered<LocalPrepareFinalize>();
    expect_all_as_registered<LocalBatchedPrepareFinalize>();
    expect_all_as_registered<TwoPhasePrepareFinalize>();
}

TEST(StaticComposition, WhatDependsOnTheConfigurationIsRefusedAtRunTime) {
    const test::MatrixModel model(ExpertQuantisation::kNone);
    const test::MatrixShard shard = model.whole();
    SerialParallel serial;
    FusedMoeConfig config = test::matrix_config(ExpertQuantisation::kNone);
    LocalPrepareFinalize local(config, serial);
    GroupedExperts experts(shard.table, shard.experts_per_layer);
    EXPECT_TRUE(compose(local, experts, config, serial).ok());
    config.activation = ExpertActivation::kGelu;
    EXPECT_EQ(compose(local, experts, config, serial).error().message,
              "grouped_bf16 does not serve activation gelu; it serves silu");
}

}  // namespace
}  // namespace afd::ops
