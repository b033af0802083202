// SPDX-License-Identifier: Apache-2.0
//
// Goal: every pair of parts that the records allow gives the layer's exact output, and every other
// one is refused for its own reason.
// Method: all pairs of the registry, and the worked example, × every weight format that the experts
// serve × {chunked, not} × {bf16, int8, fp8 dispatch} × {shared stage, not} × {weights on the
// experts' output, input}; each legal composition runs {0, 1, 7, 33, 257} tokens × top-{1, 4, 8} ×
// five routings, the plain ones on two threads. The pair over windows runs the same cases in
// tests/daemon/lanes/window_matrix_test.cc. Oracle: rows computed one by one and summed in the
// specification's order, bit for bit; for the kernels these rows are in turn near those of
// ops/reference. Reasons are the texts below.

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "ops/fused_moe/fused_moe.h"
#include "tests/ops/fused_moe/example_experts.h"
#include "tests/ops/fused_moe/moe_matrix.h"

namespace afd::ops {
namespace {

using test::MatrixCase;
using test::MatrixModel;
using test::MatrixOracle;
using test::MatrixShard;

std::vector<ExpertsEntry> all_experts() {
    std::vector<ExpertsEntry> entries(experts_parts().begin(), experts_parts().end());
    entries.push_back(test::kExampleExperts);
    return entries;
}

struct Features {
    bool chunked;
    RowDtype dispatch_dtype;
    bool shared_stage;
    bool weight_on_input;  // Top-1; without a stage there are no shared experts then.

    FusedMoeConfig apply_to(FusedMoeConfig config) const {
        if (chunked) config.max_chunk_tokens = test::kMatrixChunk;
        config.dispatch_dtype = dispatch_dtype;
        config.has_shared_stage = shared_stage;
        config.apply_router_weight_on_input = weight_on_input;
        if (weight_on_input) config.top_k = 1;
        if (weight_on_input && !shared_stage) config.num_shared = 0;
        return config;
    }
    std::string name() const {
        return std::string(chunked ? " chunked " : " ") + std::string(name_of(dispatch_dtype)) +
               " dispatch" + (shared_stage ? " shared stage" : "") +
               (weight_on_input ? " weight on input" : "");
    }
};

std::vector<Features> all_features() {
    std::vector<Features> all;
    for (const bool chunked : {false, true}) {
        for (const RowDtype dtype : {RowDtype::kBf16, RowDtype::kInt8, RowDtype::kFp8}) {
            for (const bool shared_stage : {false, true}) {
                for (const bool weight_on_input : {false, true}) {
                    all.push_back({chunked, dtype, shared_stage, weight_on_input});
                }
            }
        }
    }
    return all;
}

// Models and oracles of one weight format, made once.
struct Subject {
    explicit Subject(ExpertQuantisation quantisation)
        : model(quantisation),
          shard(model.whole()),
          routed(model.with_shared(0)),
          shared(1),
          oracles{{MatrixOracle(model, false), MatrixOracle(model, true)},
                  {MatrixOracle(model, false, RowDtype::kFp8),
                   MatrixOracle(model, true, RowDtype::kFp8)}} {
        for (uint32_t layer = 0; layer < test::kMatrixLayers; ++layer) {
            shared.set(layer, 0, model.expert(layer, test::kMatrixExperts));
        }
    }
    static Subject& of(ExpertQuantisation quantisation) {
        static Subject subjects[] = {Subject(ExpertQuantisation::kNone),
                                     Subject(ExpertQuantisation::kInt8),
                                     Subject(ExpertQuantisation::kInt4),
                                     Subject(ExpertQuantisation::kFp8)};
        return subjects[static_cast<size_t>(quantisation)];
    }

    MatrixModel model;
    MatrixShard shard;
    MatrixShard routed;          // Without the shared experts.
    MatrixShard shared;          // The shared experts alone, for a shared stage.
    MatrixOracle oracles[2][2];  // [rows travel as fp8][by the loops of ops/reference]
};

bool runs_reference_loops(const ExpertsEntry& entry) {
    return entry.capability->name == "reference" || entry.capability->name == "example";
}

void run_cases(const MoePair& pair, const FusedMoeConfig& config, const std::string& where) {
    Subject& subject = Subject::of(pair.quantisation);
    const bool is_reference = runs_reference_loops(*pair.experts);
    const bool is_fp8 = config.dispatch_dtype == RowDtype::kFp8;
    MatrixOracle& oracle = subject.oracles[is_fp8 ? 1 : 0][is_reference ? 1 : 0];
    // Real threads cost more than the work: only the plain compositions have them.
    const bool is_plain = config.max_chunk_tokens == 0 && !config.has_shared_stage;
    SerialParallel serial;
    threads::ThreadPool two_threads(2);
    Parallel& threads = is_plain ? static_cast<Parallel&>(two_threads) : serial;
    const auto prepare_finalize = pair.prepare_finalize->make(config, threads);
    const MatrixShard& shard = config.num_shared > 0 ? subject.shard : subject.routed;
    const auto experts = pair.experts->make(shard.setup());
    // A stage by the same arithmetic, so that the oracle holds for its rows too.
    const auto stage = find_experts(is_reference ? "reference" : "grouped_bf16")
                           .value()
                           ->make(subject.shared.setup());
    auto moe = FusedMoe::compose(*prepare_finalize,
                                 *experts,
                                 config,
                                 threads,
                                 config.has_shared_stage ? stage.get() : nullptr);
    ASSERT_TRUE(moe.ok()) << where << ": " << moe.error().message;
    const test::RandomMatrix x = test::matrix_tokens();
    for (const MatrixCase& c : test::matrix_cases()) {
        if (c.top_k > config.top_k) continue;
        std::vector<Bf16> out(c.num_tokens * test::kMatrixHidden);
        MoeInput input = c.input(x);
        input.num_shared = static_cast<uint32_t>(config.num_shared);
        const auto applied =
            moe.value().apply(input, make_rows(out.data(), c.num_tokens, test::kMatrixHidden));
        ASSERT_TRUE(applied.ok()) << where << ": " << applied.error().message;
        ASSERT_EQ(out,
                  config.apply_router_weight_on_input
                      ? oracle.expected_weight_on_input(c, input.num_shared)
                      : oracle.expected(c))
            << where << ": " << c.name();
    }
    EXPECT_EQ(x.values, test::matrix_tokens().values) << where << ": the caller's rows changed";
}

class FusedMoeMatrix : public testing::TestWithParam<ExpertQuantisation> {};

TEST_P(FusedMoeMatrix, EveryLegalPairGivesTheBitsOfItsRowsAlone) {
    const std::vector<ExpertsEntry> experts = all_experts();
    size_t num_compositions = 0;
    for (const MoePair& pair : moe_pairs(experts)) {
        if (pair.quantisation != GetParam() || pair.prepare_finalize->make == nullptr) continue;
        for (const Features& features : all_features()) {
            const FusedMoeConfig config = features.apply_to(test::matrix_config(pair.quantisation));
            if (!check_composition(*pair.prepare_finalize, *pair.experts, config).ok()) continue;
            const std::string where = std::string(pair.prepare_finalize->capability->name) + " + " +
                                      std::string(pair.experts->capability->name) + features.name();
            ASSERT_NO_FATAL_FAILURE(run_cases(pair, config, where));
            ++num_compositions;
        }
    }
    // local and two_phase with and without chunks, local_batched without, each with and without a
    // shared stage, for reference and the part of the format; with bf16 weights batched_bf16 and
    // the example too, with int8 ones all also with int8 dispatch; all with fp8 dispatch. All of
    // it with the weights on the rows of the output, and of the input.
    constexpr size_t kExpected[] = {88, 108, 72, 72};
    EXPECT_EQ(num_compositions, kExpected[static_cast<size_t>(GetParam())]);
}

// Bound: as for the bf16 rows of grouped_ffn_test; int8 products are exact, so they differ by the
// roundings around them only.
TEST_P(FusedMoeMatrix, RowsOfTheKernelsAreNearThoseOfTheReference) {
    Subject& subject = Subject::of(GetParam());
    for (uint32_t token = 0; token < 33; ++token) {
        for (size_t expert = 0; expert < test::kMatrixPerLayer; ++expert) {
            const std::vector<Bf16>& have = subject.oracles[0][0].row(token, expert);
            const std::vector<Bf16>& want = subject.oracles[0][1].row(token, expert);
            float largest = 0;
            for (const Bf16& value : want) largest = std::max(largest, std::fabs(to_float(value)));
            for (size_t c = 0; c < have.size(); ++c) {
                ASSERT_NEAR(to_float(have[c]), to_float(want[c]), 5.0f / 256.0f * largest)
                    << token << "," << expert << "," << c;
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Weights,
                         FusedMoeMatrix,
                         testing::ValuesIn(kExpertQuantisations),
                         [](const auto& quantisation) {
                             return std::string(name_of(quantisation.param));
                         });

// What every illegal pair is refused for.
const std::map<std::pair<std::string, std::string>, std::string> kIllegalPairs = {
    {{"local", "batched_bf16"},
     "local gives activations in format standard, but batched_bf16 takes batched"},
    {{"local_batched", "grouped_bf16"},
     "local_batched gives activations in format batched, but grouped_bf16 takes standard, grouped"},
    {{"local_batched", "grouped_int8"},
     "local_batched gives activations in format batched, but grouped_int8 takes standard, grouped"},
    {{"local_batched", "grouped_int4"},
     "local_batched gives activations in format batched, but grouped_int4 takes standard, grouped"},
    {{"local_batched", "grouped_fp8"},
     "local_batched gives activations in format batched, but grouped_fp8 takes standard, grouped"},
    {{"local_batched", "example"},
     "local_batched gives activations in format batched, but example takes standard"},
    {{"two_phase", "batched_bf16"},
     "two_phase gives activations in format grouped, but batched_bf16 takes batched"},
    {{"two_phase", "example"},
     "two_phase gives activations in format grouped, but example takes standard"},
    {{"afd_window", "batched_bf16"},
     "afd_window gives activations in format grouped, but batched_bf16 takes batched"},
    {{"afd_window", "example"},
     "afd_window gives activations in format grouped, but example takes standard"},
    {{"afd_window_ffn_router", "batched_bf16"},
     "afd_window_ffn_router gives activations in format grouped, but batched_bf16 takes batched"},
    {{"afd_window_ffn_router", "example"},
     "afd_window_ffn_router gives activations in format grouped, but example takes standard"},
    {{"afd_two_phase", "batched_bf16"},
     "afd_two_phase gives activations in format grouped, but batched_bf16 takes batched"},
    {{"afd_two_phase", "example"},
     "afd_two_phase gives activations in format grouped, but example takes standard"},
};

TEST(FusedMoeRegistry, EveryIllegalPairIsRefusedForItsReason) {
    std::set<std::pair<std::string, std::string>> refused;
    const std::vector<ExpertsEntry> experts = all_experts();
    for (const MoePair& pair : moe_pairs(experts)) {
        const std::pair<std::string, std::string> names(pair.prepare_finalize->capability->name,
                                                        pair.experts->capability->name);
        const auto checked = check_composition(
            *pair.prepare_finalize, *pair.experts, test::matrix_config(pair.quantisation));
        const auto expected = kIllegalPairs.find(names);
        if (expected == kIllegalPairs.end()) {
            EXPECT_TRUE(checked.ok()) << checked.error().message;
            continue;
        }
        ASSERT_FALSE(checked.ok()) << names.first << " + " << names.second;
        EXPECT_EQ(checked.error().code, Code::kFailedPrecondition);
        EXPECT_EQ(checked.error().message, expected->second);
        refused.insert(names);
    }
    EXPECT_EQ(refused.size(), kIllegalPairs.size());
}

// The first reason that holds for a legal pair that is asked for a feature it does not have.
std::string expected_refusal(const MoePair& pair, const Features& features) {
    const std::string name(pair.experts->capability->name);
    const std::string dispatch(pair.prepare_finalize->capability->name);
    const bool is_int8 = features.dispatch_dtype == RowDtype::kInt8;
    if (is_int8 && pair.quantisation != ExpertQuantisation::kInt8) {
        return "dispatch_dtype is int8; only experts with int8 weights take such rows, and "
               "quantisation is " +
               std::string(name_of(pair.quantisation));
    }
    if (features.weight_on_input && dispatch == "afd_window_ffn_router") {
        return dispatch +
               " sends rows before their weights are chosen; apply_router_weight_on_input must be "
               "false";
    }
    const bool is_remote = dispatch.starts_with("afd_");
    if (features.chunked && is_remote) {
        return dispatch +
               " sends whole micro-batches to other processes; max_chunk_tokens is 16 and must be "
               "0";
    }
    if (features.chunked && dispatch == "local_batched") {
        return "local_batched gives batched activations, whose capacity bounds a call already; "
               "max_chunk_tokens is 16 and must be 0";
    }
    if (features.dispatch_dtype != RowDtype::kBf16 && dispatch == "afd_window_ffn_router") {
        return "afd_window_ffn_router sends rows as bf16 only; dispatch_dtype is " +
               std::string(name_of(features.dispatch_dtype));
    }
    if (features.shared_stage && name == "example") {
        return "example reduces before the rows of a shared stage are there; has_shared_stage must "
               "be false";
    }
    return "";
}

TEST(FusedMoeRegistry, EveryFeatureThatALegalPairLacksIsRefusedForItsReason) {
    const std::vector<ExpertsEntry> experts = all_experts();
    size_t num_refused = 0;
    for (const MoePair& pair : moe_pairs(experts)) {
        const FusedMoeConfig plain = test::matrix_config(pair.quantisation);
        if (!check_composition(*pair.prepare_finalize, *pair.experts, plain).ok()) continue;
        for (const Features& features : all_features()) {
            const auto checked =
                check_composition(*pair.prepare_finalize, *pair.experts, features.apply_to(plain));
            EXPECT_EQ(checked.ok() ? "" : checked.error().message, expected_refusal(pair, features))
                << pair.prepare_finalize->capability->name << " + "
                << pair.experts->capability->name << features.name();
            num_refused += checked.ok() ? 0 : 1;
        }
    }
    EXPECT_GT(num_refused, 50u);
}

// Rows without topk_ids go only where somebody routes them.
TEST(FusedMoeRegistry, UnroutedRowsAreRefusedByEveryPartThatDoesNotRoute) {
    const ExpertsEntry& experts = *find_experts("reference").value();
    for (const PrepareFinalizeEntry& entry : prepare_finalize_parts()) {
        const std::string name(entry.capability->name);
        const FusedMoeConfig config =
            with_feature(test::matrix_config(ExpertQuantisation::kNone), MoeFeature::kUnrouted);
        const auto checked = check_composition(entry, experts, config);
        if (name == "afd_window_ffn_router") {
            EXPECT_TRUE(checked.ok()) << checked.error().message;
            continue;
        }
        ASSERT_FALSE(checked.ok()) << name;
        EXPECT_EQ(checked.error().message,
                  name + " takes rows that are routed already; needs_routing must be false");
    }
}

TEST(FusedMoeRegistry, PartsAreFoundByNameAndOthersAreListed) {
    EXPECT_EQ(find_experts("grouped_int8").value()->capability->name, "grouped_int8");
    EXPECT_EQ(find_prepare_finalize("two_phase").value()->capability->name, "two_phase");
    EXPECT_EQ(find_experts("fast").error().message,
              "no Experts part is called fast; there are reference, grouped_bf16, grouped_int8, "
              "grouped_int4, grouped_fp8, batched_bf16");
    EXPECT_EQ(find_prepare_finalize("pplx").error().message,
              "no PrepareFinalize part is called pplx; there are local, local_batched, two_phase, "
              "afd_window, afd_window_ffn_router, afd_two_phase");
}

}  // namespace
}  // namespace afd::ops
