// SPDX-License-Identifier: Apache-2.0
//
// A family of models that model/ does not have, added from outside by docs/adding/model_family.md:
// the example of that page, and the proof that nothing between a checkpoint and its logits knows
// which kind of attention it serves.

#include "tests/model/toy_family/toy_family.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "model/decoder/attention_half.h"
#include "model/decoder/local_decoder.h"
#include "model/family/config_file.h"
#include "model/family/family_registry.h"
#include "tests/model/toy_family/toy_checkpoint.h"
#include "tests/temporary_directory.h"

namespace afd::model {
namespace {

using ::testing::HasSubstr;
using ::testing::Lt;

// Runs tasks last to first and pretends to have three threads.
class BackwardParallel final : public ops::Parallel {
  public:
    unsigned num_threads() const override { return 3; }
    void run(size_t num_tasks, ops::FunctionRef<void(size_t, unsigned)> body) override {
        for (size_t task = num_tasks; task-- > 0;) body(task, static_cast<unsigned>(task % 3));
    }
};

class ToyFamily : public ::testing::Test {
  protected:
    static void SetUpTestSuite() { register_family(toy_family()); }

    ModelFiles opened(const ToyCheckpoint& checkpoint) {
        checkpoint.write(directory_.path());
        return ModelFiles::open(directory_.path()).value();
    }

    static std::vector<int32_t> random_tokens(size_t count) {
        std::mt19937 generator(3);
        std::vector<int32_t> tokens(count);
        for (int32_t& token : tokens) token = static_cast<int32_t>(generator() % 80);
        return tokens;
    }

    static std::vector<float> logits(const ModelFiles& files,
                                     const std::vector<int32_t>& tokens,
                                     size_t chunk,
                                     ops::NumericClass numeric_class,
                                     ops::Parallel& parallel) {
        const size_t vocab_size = files.config().vocab_size;
        auto decoder = LocalDecoder::load(files,
                                          numeric_class,
                                          static_cast<uint32_t>(chunk),
                                          static_cast<uint32_t>(tokens.size()),
                                          parallel)
                           .value();
        std::vector<float> out(tokens.size() * vocab_size);
        for (size_t done = 0; done < tokens.size(); done += chunk) {
            const size_t count = std::min(chunk, tokens.size() - done);
            const auto result =
                decoder.append(std::span(tokens).subspan(done, count),
                               ops::make_rows(&out[done * vocab_size], count, vocab_size));
            EXPECT_TRUE(result.ok()) << result.error().message;
        }
        return out;
    }

    static std::string refusal(const nlohmann::json& config) {
        const auto result = parse_model_config(config.dump(), "config.json");
        return result.ok() ? "accepted" : result.error().message;
    }

    test::TemporaryDirectory directory_;
};

TEST_F(ToyFamily, IsFoundByItsArchitectureAndByItsModelType) {
    nlohmann::json config = toy_config();
    const ModelConfig read = parse_model_config(config.dump(), "config.json").value();
    EXPECT_EQ(read.model_type, "toy_gqa");
    EXPECT_EQ(read.num_experts, 4u);
    EXPECT_EQ(kv_shape(read).bytes_per_token(), 2u * 2 * 2 * 10 * 2);
    config.erase("architectures");
    EXPECT_EQ(parse_model_config(config.dump(), "config.json").value().model_type, "toy_gqa");
}

// Goal: prefill, chunks and one token at a time give the same bits, on any threads and in every
// numeric class. Oracle: the whole prompt at once.
TEST_F(ToyFamily, ChunksAndThreadsChangeNoBit) {
    const ModelFiles files = opened(ToyCheckpoint(toy_config()));
    const std::vector<int32_t> tokens = random_tokens(150);
    ops::SerialParallel serial;
    BackwardParallel backward;
    for (const ops::NumericClass numeric_class : ops::supported_numeric_classes()) {
        SCOPED_TRACE(ops::name_of(numeric_class));
        const auto whole = logits(files, tokens, 150, numeric_class, serial);
        for (const size_t chunk : {1, 7, 64}) {
            EXPECT_EQ(logits(files, tokens, chunk, numeric_class, serial), whole) << chunk;
        }
        EXPECT_EQ(logits(files, tokens, 50, numeric_class, backward), whole);
    }
}

// Goal: the logits are those of the model. Oracle: plain loops over doubles. All experts are
// chosen, so that no near tie turns a rounding into another expert. Bound: the decoder rounds to
// bf16 (2^-9 relative) a few times a layer; measured below 2^-7 of the largest logit, bound 2^-6.
TEST_F(ToyFamily, AgreesWithPlainLoops) {
    const ToyCheckpoint checkpoint(toy_config(), 7);
    const ModelFiles files = opened(checkpoint);
    const std::vector<int32_t> tokens = random_tokens(90);
    const std::vector<double> expected = checkpoint.logits(tokens);
    double largest = 0;
    for (const double value : expected) largest = std::max(largest, std::abs(value));
    ops::SerialParallel serial;
    for (const ops::NumericClass numeric_class : ops::supported_numeric_classes()) {
        const auto actual = logits(files, tokens, 32, numeric_class, serial);
        double difference = 0;
        for (size_t i = 0; i < actual.size(); ++i) {
            difference =
                std::max(difference, std::abs(static_cast<double>(actual[i]) - expected[i]));
        }
        EXPECT_THAT(difference / largest, Lt(0x1p-6)) << ops::name_of(numeric_class);
        RecordProperty("difference_" + std::string(ops::name_of(numeric_class)),
                       std::to_string(difference / largest));
    }
}

// Goal: a row depends on its own sequence only, not on its company or its blocks. Method: one
// sequence alone in blocks 0 and 1, then with another one between its rows in blocks 6 and 3.
// Oracle: equal bits.
TEST_F(ToyFamily, CompanyAndBlocksChangeNoBit) {
    const ModelFiles files = opened(ToyCheckpoint(toy_config()));
    const AttentionHalf half = AttentionHalf::load(files, ops::best_numeric_class()).value();
    constexpr size_t kTokens = 80;
    constexpr size_t kHidden = 48;
    ops::SerialParallel serial;
    AttentionWorkspace workspace(half, 2 * kTokens, 1);
    std::mt19937 generator(5);
    std::normal_distribution<float> normal;
    std::vector<ops::Bf16> rows(2 * kTokens * kHidden);
    for (ops::Bf16& value : rows) value = ops::from_float(normal(generator));
    // The even rows are one sequence, the odd rows the other; `step` 2 takes the first alone.
    const auto attend = [&](size_t step, const std::vector<int32_t>(&blocks)[2]) {
        const KvCache cache = KvCache::create(kv_shape(half.config()), 512).value();
        std::vector<ops::Bf16> residual;
        std::vector<int32_t> positions;
        std::vector<int64_t> slots;
        std::vector<const int32_t*> tables;
        for (size_t t = 0; t < 2 * kTokens; t += step) {
            const auto position = static_cast<uint32_t>(t / 2);
            const auto row = rows.begin() + static_cast<std::ptrdiff_t>(t * kHidden);
            residual.insert(residual.end(), row, row + kHidden);
            positions.push_back(static_cast<int32_t>(position));
            slots.push_back(cache_row(blocks[t % 2], position));
            tables.push_back(blocks[t % 2].data());
        }
        half.attention(1,
                       {positions.size(), positions.data(), slots.data(), tables.data()},
                       cache,
                       ops::make_rows(residual.data(), positions.size(), kHidden),
                       workspace,
                       serial);
        return residual;
    };
    const auto alone = attend(2, {{0, 1}, {}});
    const auto mixed = attend(1, {{6, 3}, {1, 2}});
    for (size_t t = 0; t < kTokens; ++t) {
        EXPECT_EQ(
            std::memcmp(&alone[t * kHidden], &mixed[2 * t * kHidden], kHidden * sizeof(ops::Bf16)),
            0)
            << "position " << t;
    }
}

TEST_F(ToyFamily, RefusesWhatItDoesNotServe) {
    nlohmann::json config = toy_config();
    config["num_key_value_heads"] = 4;
    EXPECT_EQ(refusal(config),
              "config.json: num_key_value_heads is 4; supported: a divisor of "
              "num_attention_heads, 6");
    config = toy_config();
    config["sliding_window"] = 128;
    EXPECT_EQ(refusal(config), "config.json: sliding_window is 128; supported: null");
    config = toy_config();
    config["quantization_config"] = {
        {"quant_method", "afd"}, {"experts", "int8"}, {"attention", "int8"}};
    EXPECT_THAT(refusal(config), HasSubstr("models of type toy_gqa with \"attention\": bf16"));
    config["quantization_config"]["attention"] = "bf16";
    EXPECT_EQ(refusal(config), "accepted");
}

TEST_F(ToyFamily, RefusesAWayToKeepKeysThatItsAttentionLacks) {
    ToyCheckpoint(toy_config()).write(directory_.path());
    const auto refused = ModelFiles::open(directory_.path(), ops::KvDtype::kInt8);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().message,
              "kv_dtype = 'int8': the attention of models of type toy_gqa keeps keys and values as "
              "bf16");
}

TEST_F(ToyFamily, AnUnknownFamilyIsToldOfAllThatAreRegistered) {
    nlohmann::json config = toy_config();
    config["architectures"] = {"NobodysForCausalLM"};
    EXPECT_EQ(refusal(config),
              "config.json: architectures is [\"NobodysForCausalLM\"]; supported: "
              "[\"DeepseekV2ForCausalLM\"], [\"DeepseekV3ForCausalLM\"], "
              "[\"Glm4MoeLiteForCausalLM\"], [\"Glm4MoeForCausalLM\"], [\"GptOssForCausalLM\"], "
              "[\"DeepseekForCausalLM\"], [\"Dots1ForCausalLM\"], [\"MiniMaxM2ForCausalLM\"], "
              "[\"MixtralForCausalLM\"], "
              "[\"OlmoeForCausalLM\"], [\"PhiMoEForCausalLM\"], [\"PhimoeForCausalLM\"], "
              "[\"Qwen2MoeForCausalLM\"], "
              "[\"Qwen3MoeForCausalLM\"], "
              "[\"ToyGqaForCausalLM\"]");
}

TEST_F(ToyFamily, NamesATensorThatIsMissing) {
    ToyCheckpoint checkpoint(toy_config());
    checkpoint.remove("model.layers.1.self_attn.k_proj.weight");
    const auto half = AttentionHalf::load(opened(checkpoint), ops::best_numeric_class());
    ASSERT_FALSE(half.ok());
    EXPECT_THAT(half.error().message,
                HasSubstr("tensor model.layers.1.self_attn.k_proj.weight [20, 48] is missing"));
}

TEST(FamilyRegistryDeathTest, AFamilyRegisteredTwiceIsABug) {
    EXPECT_DEATH(register_family({"deepseek_v3", "AnotherForCausalLM", nullptr}),
                 "the family deepseek_v3 is registered already");
}

}  // namespace
}  // namespace afd::model
