// SPDX-License-Identifier: Apache-2.0
//
// Goal: every activation, with and without bias, gives the layer's exact output in every pair of
// parts that the records allow, and every other one is refused for its reason.
// Method: all pairs of the registry within this process, and the worked example, × every weight
// format × eight activations × bias × {plain, chunked, int8 dispatch}; each legal composition runs
// {0, 7, 33} tokens × top-4 × {Zipf, duplicates}.
// Oracle: rows computed one by one and summed in the specification's order, bit for bit; for the
// kernels these rows are in turn near those of ops/reference (expert_activation_test.cc).

#include <gtest/gtest.h>

#include "ops/fused_moe/fused_moe.h"
#include "tests/ops/fused_moe/example_experts.h"
#include "tests/ops/fused_moe/moe_matrix.h"

namespace afd::ops {
namespace {

using test::MatrixCase;
using test::MatrixKind;
using test::MatrixModel;
using test::MatrixOracle;
using test::MatrixShard;

constexpr MoeFeature kFeatures[] = {
    MoeFeature::kPlain, MoeFeature::kChunked, MoeFeature::kInt8Dispatch};

FusedMoeConfig config_for(const MatrixKind& kind, MoeFeature feature) {
    FusedMoeConfig config = with_feature(test::matrix_config(kind.quantisation), feature);
    if (feature == MoeFeature::kChunked) config.max_chunk_tokens = test::kMatrixChunk;
    config.activation = kind.activation;
    config.bias = kind.has_bias ? ExpertBias::kPresent : ExpertBias::kAbsent;
    return config;
}

std::string name_of(const MatrixKind& kind, const MoePair& pair, MoeFeature feature) {
    return std::string(pair.prepare_finalize->capability->name) + " + " +
           std::string(pair.experts->capability->name) + ", " +
           std::string(ops::name_of(kind.activation)) + (kind.has_bias ? " with bias, " : ", ") +
           std::string(ops::name_of(feature));
}

class FusedMoeActivations : public testing::TestWithParam<ExpertActivation> {};

struct ActivationSubject {
    MatrixModel model;
    MatrixShard shard;
    MatrixOracle by_reference;
    MatrixOracle by_kernels;

    explicit ActivationSubject(const MatrixKind& kind)
        : model(kind), shard(model.whole()), by_reference(model, true), by_kernels(model, false) {}

    void run(const MoePair& pair, const FusedMoeConfig& config, const std::string& where) {
        SerialParallel serial;
        const auto prepare_finalize = pair.prepare_finalize->make(config, serial);
        const auto experts = pair.experts->make(shard.setup());
        auto moe = FusedMoe::compose(*prepare_finalize, *experts, config, serial);
        ASSERT_TRUE(moe.ok()) << where << ": " << moe.error().message;
        const bool is_reference = pair.experts->capability->name == "reference" ||
                                  pair.experts->capability->name == "example";
        const test::RandomMatrix x = test::matrix_tokens();
        for (const uint32_t num_tokens : {0u, 7u, 33u}) {
            for (const test::Routing routing : {test::Routing::kZipf, test::Routing::kDuplicates}) {
                const MatrixCase c(num_tokens, 4, routing);
                std::vector<Bf16> out(num_tokens * test::kMatrixHidden);
                const auto applied = moe.value().apply(
                    c.input(x), make_rows(out.data(), num_tokens, test::kMatrixHidden));
                ASSERT_TRUE(applied.ok()) << where << ": " << applied.error().message;
                ASSERT_EQ(out, (is_reference ? by_reference : by_kernels).expected(c))
                    << where << ": " << c.name();
            }
        }
    }
};

TEST_P(FusedMoeActivations, EveryLegalPairGivesTheBitsOfItsRowsAlone) {
    std::vector<ExpertsEntry> experts(experts_parts().begin(), experts_parts().end());
    experts.push_back(test::kExampleExperts);
    size_t num_compositions = 0;
    for (const bool has_bias : {false, true}) {
        for (const ExpertQuantisation quantisation : kExpertQuantisations) {
            const MatrixKind kind{quantisation, GetParam(), has_bias};
            ActivationSubject subject(kind);
            for (const MoePair& pair : moe_pairs(experts)) {
                if (pair.quantisation != quantisation || !pair.prepare_finalize->make) continue;
                for (const MoeFeature feature : kFeatures) {
                    const FusedMoeConfig config = config_for(kind, feature);
                    if (!check_composition(*pair.prepare_finalize, *pair.experts, config).ok()) {
                        continue;
                    }
                    ASSERT_NO_FATAL_FAILURE(
                        subject.run(pair, config, name_of(kind, pair, feature)));
                    ++num_compositions;
                }
            }
        }
    }
    // bf16: local and two_phase with two parts, both chunked too, and local_batched with two. int8
    // int4 and fp8: the same with one part for local_batched; int8 rows as often as plain ones. And
    // the example, which knows silu without bias only.
    const size_t num_examples = GetParam() == ExpertActivation::kSilu ? 2 : 0;
    EXPECT_EQ(num_compositions, 2u * (10 + 9 + 5 + 9 + 9) + num_examples);
}

INSTANTIATE_TEST_SUITE_P(All,
                         FusedMoeActivations,
                         testing::ValuesIn(kExpertActivations),
                         [](const auto& activation) {
                             return std::string(ops::name_of(activation.param));
                         });

// Every part of the registry serves every activation and a bias; the example's record does not
// name them.
TEST(FusedMoeActivation, APartRefusesWhatItsRecordDoesNotName) {
    for (const ExpertActivation activation : kExpertActivations) {
        for (const bool has_bias : {false, true}) {
            MatrixKind kind{ExpertQuantisation::kNone, activation, has_bias};
            for (const ExpertsEntry& entry : experts_parts()) {
                FusedMoeConfig config = config_for(kind, MoeFeature::kPlain);
                if ((entry.capability->quantisations & bit(config.quantisation)) == 0) continue;
                EXPECT_TRUE(check(*entry.capability, config).ok()) << entry.capability->name;
            }
            const auto refused =
                check(*test::kExampleExperts.capability, config_for(kind, MoeFeature::kPlain));
            const std::string reason =
                activation != ExpertActivation::kSilu
                    ? "example does not serve activation " + std::string(ops::name_of(activation)) +
                          "; it serves silu"
                : has_bias ? "example does not serve bias present; it serves absent"
                           : "";
            EXPECT_EQ(refused.ok() ? "" : refused.error().message, reason);
        }
    }
}

// An instance serves what its experts are, so a wrong configuration is refused, not computed.
TEST(FusedMoeActivation, AConfigurationOfOtherExpertsIsRefusedAtComposition) {
    const MatrixModel model(MatrixKind{ExpertQuantisation::kNone, ExpertActivation::kGelu, true});
    const MatrixShard shard = model.whole();
    SerialParallel serial;
    for (const MoePair& pair : moe_pairs()) {
        const FusedMoeConfig silu = test::matrix_config(ExpertQuantisation::kNone);
        FusedMoeConfig without = silu;
        without.activation = ExpertActivation::kGelu;
        if (pair.quantisation != ExpertQuantisation::kNone || !pair.prepare_finalize->make ||
            !check_composition(*pair.prepare_finalize, *pair.experts, silu).ok()) {
            continue;
        }
        const auto prepare_finalize = pair.prepare_finalize->make(silu, serial);
        const auto experts = pair.experts->make(shard.setup());
        const auto reason = [&](const FusedMoeConfig& config) {
            const auto moe = FusedMoe::compose(*prepare_finalize, *experts, config, serial);
            return moe.ok() ? std::string("ok") : moe.error().message;
        };
        const std::string name(pair.experts->capability->name);
        EXPECT_EQ(reason(silu), name + " does not serve activation silu; it serves gelu");
        EXPECT_EQ(reason(without), name + " does not serve bias absent; it serves present");
    }
}

}  // namespace
}  // namespace afd::ops
