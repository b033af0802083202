// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the fused-MoE test matrix over parts between processes shares (window_matrix_test.cc,
// two_phase_matrix_test.cc): every composition that the records allow, its experts on the ranks,
// and the oracle. tests/ops/fused_moe/fused_moe_matrix_test.cc asserts the reason of every other
// one.

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "ops/fused_moe/fused_moe.h"
#include "schedule/dispatch/expert_placement.h"
#include "schedule/layout/row_dtype.h"
#include "tests/ops/fused_moe/moe_matrix.h"

namespace afd::daemon {

inline constexpr uint32_t kMatrixRanks = 2;

struct RemoteCase {
    ops::MoePair pair;
    schedule::RowDtype dispatch_dtype;
    bool has_shared_stage;
    bool weight_on_input;  // Top-1; without a stage there are no shared experts then.

    uint32_t num_dispatched_shared() const { return has_shared_stage || weight_on_input ? 0 : 1; }
    bool is_reference() const { return pair.experts->capability->name == "reference"; }
    ops::FusedMoeConfig config() const {
        ops::FusedMoeConfig config = ops::test::matrix_config(pair.quantisation);
        config.dispatch_dtype = dispatch_dtype;
        config.has_shared_stage = has_shared_stage;
        config.apply_router_weight_on_input = weight_on_input;
        if (weight_on_input) config.top_k = 1;
        if (weight_on_input && !has_shared_stage) config.num_shared = 0;
        config.wait_timeout_us = 60'000'000;
        return config;
    }
    std::string name() const {
        return std::string(pair.prepare_finalize->capability->name) + "_" +
               std::string(pair.experts->capability->name) + "_" +
               std::string(name_of(pair.quantisation)) + "_as_" +
               std::string(name_of(dispatch_dtype)) + (has_shared_stage ? "_shared_stage" : "") +
               (weight_on_input ? "_weight_on_input" : "");
    }
    bool takes(const ops::test::MatrixCase& c) const { return c.top_k <= config().top_k; }
    ops::MoeInput input(const ops::test::MatrixCase& c, const ops::test::RandomMatrix& x) const {
        ops::MoeInput input = c.input(x);
        input.num_shared = static_cast<uint32_t>(config().num_shared);
        return input;
    }
};

// Every composition of the part.
inline std::vector<RemoteCase> remote_cases(std::string_view part) {
    std::vector<RemoteCase> cases;
    for (const ops::MoePair& pair : ops::moe_pairs()) {
        if (pair.prepare_finalize->capability->name != part) continue;
        for (const schedule::RowDtype dtype :
             {schedule::RowDtype::kBf16, schedule::RowDtype::kInt8, schedule::RowDtype::kFp8}) {
            for (const bool has_shared_stage : {false, true}) {
                for (const bool weight_on_input : {false, true}) {
                    const RemoteCase of{pair, dtype, has_shared_stage, weight_on_input};
                    if (check_composition(*pair.prepare_finalize, *pair.experts, of.config())
                            .ok()) {
                        cases.push_back(of);
                    }
                }
            }
        }
    }
    return cases;
}

inline const ops::test::MatrixModel& matrix_model(ops::ExpertQuantisation quantisation) {
    static const std::array<ops::test::MatrixModel, 4> models{
        ops::test::MatrixModel(ops::ExpertQuantisation::kNone),
        ops::test::MatrixModel(ops::ExpertQuantisation::kInt8),
        ops::test::MatrixModel(ops::ExpertQuantisation::kInt4),
        ops::test::MatrixModel(ops::ExpertQuantisation::kFp8)};
    return models[static_cast<size_t>(quantisation)];
}

// Made once for all cases with the same bits. For the main thread.
inline ops::test::MatrixOracle& matrix_oracle(const RemoteCase& of) {
    using Key = std::array<int, 3>;
    static std::map<Key, ops::test::MatrixOracle> oracles;
    const bool is_fp8 = of.dispatch_dtype == schedule::RowDtype::kFp8;
    const Key key{
        static_cast<int>(of.pair.quantisation), of.is_reference() ? 1 : 0, is_fp8 ? 1 : 0};
    return oracles
        .try_emplace(key, matrix_model(of.pair.quantisation), of.is_reference(), of.dispatch_dtype)
        .first->second;
}

// By the oracle of its bits.
inline std::vector<ops::Bf16> matrix_expected(const RemoteCase& of,
                                              const ops::test::MatrixCase& c) {
    if (!of.weight_on_input) return matrix_oracle(of).expected(c);
    return matrix_oracle(of).expected_weight_on_input(
        c, static_cast<uint32_t>(of.config().num_shared));
}

inline schedule::ExpertPlacement matrix_placement(const RemoteCase& of) {
    const std::vector<schedule::LayerExperts> layers(
        ops::test::kMatrixLayers,
        {static_cast<uint32_t>(ops::test::kMatrixExperts), of.num_dispatched_shared()});
    return schedule::ExpertPlacement::round_robin(layers, kMatrixRanks).value();
}

// An Experts part, and the weights that it looks at.
struct MatrixPart {
    ops::test::MatrixShard shard;
    std::unique_ptr<ops::Experts> experts;
};

// What a rank runs.
inline MatrixPart rank_part(const RemoteCase& of,
                            const schedule::ExpertPlacement& placement,
                            uint32_t rank) {
    MatrixPart part{ops::test::MatrixShard(placement.num_local_experts_per_layer(rank)), nullptr};
    for (const schedule::HeldExpert& local : placement.held_experts(rank)) {
        part.shard.set(local.layer_id,
                       static_cast<size_t>(local.local_id),
                       matrix_model(of.pair.quantisation).expert(local.layer_id, local.expert));
    }
    part.experts = of.pair.experts->make(part.shard.setup());
    return part;
}

// The session's shared stage, by the same arithmetic as the ranks, so that the oracle holds.
inline std::unique_ptr<MatrixPart> shared_stage(const RemoteCase& of) {
    if (!of.has_shared_stage) return nullptr;
    auto part = std::make_unique<MatrixPart>(MatrixPart{ops::test::MatrixShard(1), nullptr});
    for (uint32_t layer = 0; layer < ops::test::kMatrixLayers; ++layer) {
        part->shard.set(
            layer, 0, matrix_model(of.pair.quantisation).expert(layer, ops::test::kMatrixExperts));
    }
    part->experts = ops::find_experts(of.is_reference() ? "reference" : "grouped_bf16")
                        .value()
                        ->make(part->shard.setup());
    return part;
}

inline std::string remote_case_name(const testing::TestParamInfo<RemoteCase>& of) {
    return of.param.name();
}

}  // namespace afd::daemon
