// SPDX-License-Identifier: Apache-2.0
//
// Quantised checkpoints: what becomes of a whole one, and that the fast decoder computes what the
// reference decoder computes with it. Single matrices: matrix_quantiser_test, read_matrix_test.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "model/checkpoint/expert_tensors.h"
#include "model/decoder/local_decoder.h"
#include "model/reference/reference_decoder.h"
#include "proto/sanitizers.h"
#include "tests/model/checkpoint/checkpoint_builder.h"
#include "tests/temporary_directory.h"
#include "threads/thread_pool.h"
#include "tools/afd-quantize/quantise_checkpoint.h"

namespace afd::model {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Lt;

// A checkpoint in `quantisation`, made of small_config().
class QuantisedCheckpoint {
  public:
    explicit QuantisedCheckpoint(const QuantisationConfig& quantisation,
                                 nlohmann::json config = small_config(),
                                 bool is_fused = false,
                                 uint64_t shard_bytes = tools::kShardBytes)
        : int4_rows_(quantisation.int4_rows) {
        CheckpointBuilder builder(std::move(config));
        if (is_fused) builder.fuse_experts();
        builder.write(source_.path());
        threads::ThreadPool threads(2);
        auto directory = tools::ResultDirectory::open(path(), "a job").value();
        const auto made = tools::quantise_checkpoint(
            ModelFiles::open(source_.path()).value(),
            quantisation,
            tools::CompanionFiles(),
            directory,
            threads,
            [](uint64_t) {},
            {.shard_bytes = shard_bytes},
            uneven_ranges(ModelFiles::open(source_.path()).value().config()));
        EXPECT_TRUE(made.ok()) << made.error().message;
        EXPECT_TRUE(directory.finish().ok());
    }

    std::string path() const { return target_.path() + "/model"; }
    ModelFiles files() const {
        auto files = ModelFiles::open(path());
        EXPECT_TRUE(files.ok()) << files.error().message;
        EXPECT_TRUE(files.value().set_int4_rows(int4_rows_).ok());
        return std::move(files).value();
    }

  private:
    // Made up: what matters here is that every channel has a scale of its own.
    static tools::ChannelRanges uneven_ranges(const ModelConfig& model) {
        tools::ChannelRanges ranges(model.num_layers, std::vector<float>(model.hidden));
        for (auto& layer : ranges) {
            for (size_t i = 0; i < layer.size(); ++i) layer[i] = i % 7 == 0 ? 3.0f : 0.2f;
        }
        return ranges;
    }

    ops::Int4Rows int4_rows_;
    test::TemporaryDirectory source_;
    test::TemporaryDirectory target_;
};

std::vector<float> local_logits(const ModelFiles& files,
                                ops::NumericClass numeric_class,
                                const std::vector<int32_t>& tokens,
                                size_t chunk) {
    ops::SerialParallel serial;
    const size_t vocab_size = files.config().vocab_size;
    auto decoder = LocalDecoder::load(files,
                                      numeric_class,
                                      static_cast<uint32_t>(chunk),
                                      static_cast<uint32_t>(tokens.size()),
                                      serial);
    EXPECT_TRUE(decoder.ok()) << decoder.error().message;
    std::vector<float> logits(tokens.size() * vocab_size);
    for (size_t done = 0; done < tokens.size(); done += chunk) {
        const size_t count = std::min(chunk, tokens.size() - done);
        const auto appended = decoder.value().append(
            std::span(tokens).subspan(done, count),
            ops::make_rows(logits.data() + done * vocab_size, count, vocab_size));
        EXPECT_TRUE(appended.ok());
    }
    return logits;
}

double relative_difference(const std::vector<float>& a, const std::vector<float>& b) {
    double difference = 0;
    double largest = 0;
    for (size_t i = 0; i < b.size(); ++i) {
        difference = std::max(difference, std::abs(static_cast<double>(a[i]) - b[i]));
        largest = std::max(largest, std::abs(static_cast<double>(b[i])));
    }
    return difference / largest;
}

std::vector<int32_t> some_tokens(size_t count) {
    std::vector<int32_t> tokens;
    for (size_t i = 0; i < count; ++i) tokens.push_back(static_cast<int32_t>(i * 37 % 96));
    return tokens;
}

// small_config() in fp8, with sides that are no multiples of 128 and more than one block.
nlohmann::json fp8_config() {
    nlohmann::json config = small_config();
    config["hidden_size"] = 160;
    config["intermediate_size"] = 288;
    config["moe_intermediate_size"] = 144;
    return config;
}

CheckpointBuilder fp8_builder(nlohmann::json config,
                              bool has_powers,
                              const std::string& kept = "") {
    CheckpointBuilder builder(std::move(config));
    builder.store_as_fp8(has_powers, kept);
    return builder;
}

// Every expert for every token, so that routing cannot flip.
nlohmann::json all_chosen(nlohmann::json config) {
    config["num_experts_per_tok"] = 8;
    config["n_group"] = 1;
    config["topk_group"] = 1;
    return config;
}

// In every class, and in chunks of any size.
void expect_the_reference(const ModelFiles& files,
                          const std::string& label,
                          double bound = 0x1p-6) {
    constexpr uint32_t kTokens = AFD_SANITIZED ? 50 : 130;
    const std::vector<int32_t> tokens = some_tokens(kTokens);
    const auto reference = ReferenceDecoder::load(files).value();
    const auto expected = reference.logits(tokens, ops::reference::Rounding::kBf16).value();
    for (const ops::NumericClass numeric_class : ops::supported_numeric_classes()) {
        SCOPED_TRACE(ops::name_of(numeric_class));
        const auto whole = local_logits(files, numeric_class, tokens, kTokens);
        const double difference = relative_difference(whole, expected);
        EXPECT_THAT(difference, Lt(bound));
        EXPECT_EQ(local_logits(files, numeric_class, tokens, 1), whole);
        EXPECT_EQ(local_logits(files, numeric_class, tokens, 48), whole);
        ::testing::Test::RecordProperty(
            "difference_" + label + "_" + std::string(ops::name_of(numeric_class)),
            std::to_string(difference));
    }
}

class QuantisedDecoder : public ::testing::TestWithParam<QuantisationConfig> {};

// Goal, method and bound: as LocalDecoder.AgreesWithTheReferenceWhereRoutingCannotFlip; measured
// 0.012 of the largest logit at most, bound 2^-6. And promise 1: chunks change no bit.
TEST_P(QuantisedDecoder, AgreesWithTheReferenceAndWithItselfInChunks) {
    for (const bool has_low_rank : {true, false}) {
        nlohmann::json config = all_chosen(small_config());
        if (!has_low_rank) config["q_lora_rank"] = nullptr;
        const QuantisedCheckpoint checkpoint(GetParam(), config);
        const ModelFiles files = checkpoint.files();
        EXPECT_EQ(files.config().quantisation, GetParam());
        expect_the_reference(files, has_low_rank ? "q_lora" : "q");
    }
}

INSTANTIATE_TEST_SUITE_P(
    Formats,
    QuantisedDecoder,
    ::testing::Values(QuantisationConfig{.experts = ops::WeightFormat::kInt8},
                      QuantisationConfig{.experts = ops::WeightFormat::kInt8, .smooth = true},
                      QuantisationConfig{.experts = ops::WeightFormat::kInt4Group32},
                      QuantisationConfig{.experts = ops::WeightFormat::kInt4Group64},
                      QuantisationConfig{.experts = ops::WeightFormat::kInt4Group32Fp16},
                      QuantisationConfig{.experts = ops::WeightFormat::kInt4Group32,
                                         .int4_rows = ops::Int4Rows::kInt8},
                      QuantisationConfig{.experts = ops::WeightFormat::kInt4Group64Fp16,
                                         .int4_rows = ops::Int4Rows::kInt8},
                      QuantisationConfig{.attention = ops::WeightFormat::kInt8},
                      QuantisationConfig{.experts = ops::WeightFormat::kInt8,
                                         .attention = ops::WeightFormat::kInt8}),
    [](const auto& param_info) {
        std::string name = describe(param_info.param);
        std::erase_if(name,
                      [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; });
        return name;
    });

// Goal, method and bound as above; for models as they are released.
TEST(Fp8Decoder, AgreesWithTheReferenceAndWithItselfInChunks) {
    for (const bool has_powers : {false, true}) {
        const test::TemporaryDirectory directory;
        fp8_builder(all_chosen(fp8_config()), has_powers).write(directory.path());
        const ModelFiles files = ModelFiles::open(directory.path()).value();
        EXPECT_EQ(describe(files.config().quantisation), "experts fp8-b128");
        expect_the_reference(files, has_powers ? "powers" : "any");
    }
}

// Goal, method and bound as above; where the shared expert, or the dense layer, has stayed in bf16.
TEST(Fp8Decoder, TakesSharedExpertsOrDenseMlpsInBf16) {
    for (const char* kept : {"shared_experts", "layers.0.mlp"}) {
        SCOPED_TRACE(kept);
        const test::TemporaryDirectory directory;
        fp8_builder(all_chosen(fp8_config()), false, kept).write(directory.path());
        const ModelFiles files = ModelFiles::open(directory.path()).value();
        EXPECT_EQ(describe(files.config().quantisation), "experts fp8-b128, shared and dense bf16");
        expect_the_reference(files, kept);
    }
}

// Goal, method and bound as above; for int4 of another program, with scales of either sign. With
// the shared expert or the dense layer in bf16 the routed ones stay int4.
TEST(PackedInt4Decoder, AgreesWithTheReferenceAndWithItselfInChunks) {
    for (const std::string kept : {"", "shared_experts", "layers.0.mlp"}) {
        for (const ops::Int4Rows rows : ops::kInt4Rows) {
            const std::string label = kept + "_" + std::string(ops::name_of(rows));
            SCOPED_TRACE(label);
            CheckpointBuilder builder(all_chosen(small_config()));
            builder.store_as_packed_int4(kept);
            const test::TemporaryDirectory directory;
            builder.write(directory.path());
            ModelFiles files = ModelFiles::open(directory.path()).value();
            ASSERT_TRUE(files.set_int4_rows(rows).ok());
            const QuantisationConfig wanted{.experts = ops::WeightFormat::kInt4Group32,
                                            .has_bf16_shared = !kept.empty(),
                                            .int4_rows = rows};
            EXPECT_EQ(files.config().quantisation, wanted);
            expect_the_reference(files, label);
        }
    }
}

// Goal and method as above; for int8 of another program, where all or nothing of a kind stays int8.
// Rows are rounded to int8 in both halves of a layer: measured 0.021 at most, bound 2^-5.
TEST(ForeignInt8Decoder, AgreesWithTheReferenceAndWithItselfInChunks) {
    for (const auto& [kept, formats] :
         {std::pair{"", "experts int8, attention int8"},
          std::pair{"shared_experts", "experts int8, shared and dense bf16, attention int8"},
          std::pair{"layers.0.mlp", "experts int8, shared and dense bf16, attention int8"},
          std::pair{"1.self_attn.o_proj", "experts int8"},
          std::pair{"2.mlp.experts.3.up_proj", "attention int8"}}) {
        SCOPED_TRACE(kept);
        CheckpointBuilder builder(all_chosen(small_config()));
        builder.store_as_int8(kept);
        const test::TemporaryDirectory directory;
        builder.write(directory.path());
        const ModelFiles files = ModelFiles::open(directory.path()).value();
        EXPECT_EQ(describe(files.config().quantisation), formats);
        expect_the_reference(files, kept, 0x1p-5);
    }
}

// Goal: int8 of another program is our int8, to the last bit. Oracle: the same numbers, written as
// afd-quantize writes them.
TEST(ForeignInt8Decoder, HasTheBitsOfTheSameNumbersInOurFormat) {
    const auto logits = [](bool is_ours, ops::NumericClass numeric_class) {
        CheckpointBuilder builder(all_chosen(small_config()));
        builder.store_as_int8("", is_ours);
        const test::TemporaryDirectory directory;
        builder.write(directory.path());
        const ModelFiles files = ModelFiles::open(directory.path()).value();
        EXPECT_EQ(describe(files.config().quantisation), "experts int8, attention int8");
        return local_logits(files, numeric_class, some_tokens(40), 40);
    };
    for (const ops::NumericClass numeric_class : ops::supported_numeric_classes()) {
        EXPECT_EQ(logits(false, numeric_class), logits(true, numeric_class))
            << ops::name_of(numeric_class);
    }
}

TEST(Fp8Decoder, RefusesFusedExperts) {
    CheckpointBuilder builder(fp8_config());
    builder.fuse_experts();
    builder.store_as_fp8();
    const test::TemporaryDirectory directory;
    builder.write(directory.path());
    const ModelFiles files = ModelFiles::open(directory.path()).value();
    const auto expert = read_expert_tensors(files.tensors(), files.config(), 2, 0);
    ASSERT_FALSE(expert.ok());
    EXPECT_EQ(expert.error().message,
              "tensor model.layers.2.mlp.experts.gate_up_proj holds all experts of its layer, and "
              "config.json says fp8-b128; supported: bf16, fp16 and fp32" +
                  std::string(kForeignRemedy));
}

ModelFiles quantised_files(const test::TemporaryDirectory& source,
                           const test::TemporaryDirectory& target,
                           const QuantisationConfig& wanted) {
    threads::ThreadPool threads(2);
    const std::string path = target.path() + "/model";
    auto directory = tools::ResultDirectory::open(path, "a job").value();
    const auto made = tools::quantise_checkpoint(ModelFiles::open(source.path()).value(),
                                                 wanted,
                                                 tools::CompanionFiles(),
                                                 directory,
                                                 threads,
                                                 [](uint64_t) {});
    EXPECT_TRUE(made.ok()) << made.error().message;
    EXPECT_TRUE(directory.finish().ok());
    return ModelFiles::open(path).value();
}

// Oracle: the same from a checkpoint that holds as bf16 what the one in fp8 is read as.
TEST(QuantiseCheckpoint, StartsFromFp8AsFromItsBf16Values) {
    const test::TemporaryDirectory fp8;
    const test::TemporaryDirectory bf16;
    fp8_builder(fp8_config(), true).write(fp8.path());
    const TensorStore stored = TensorStore::open(fp8.path()).value();
    CheckpointBuilder wide(fp8_config());
    for (const TensorInfo* tensor : stored.list()) {
        if (tensor->dtype != StorageType::kF8E4M3) continue;
        wide.tensor(tensor->name) = stored.read_bf16(tensor->name, tensor->shape).value();
    }
    wide.write(bf16.path());
    const std::vector<int32_t> tokens = some_tokens(20);
    const ops::NumericClass best = ops::best_numeric_class();
    for (const QuantisationConfig& wanted :
         {QuantisationConfig{.experts = ops::WeightFormat::kInt8},
          QuantisationConfig{.experts = ops::WeightFormat::kInt4Group32,
          .attention = ops::WeightFormat::kInt8}}) {
        const test::TemporaryDirectory from_fp8;
        const test::TemporaryDirectory from_bf16;
        const ModelFiles have = quantised_files(fp8, from_fp8, wanted);
        EXPECT_EQ(have.config().quantisation, wanted);
        EXPECT_EQ(local_logits(have, best, tokens, 20),
                  local_logits(quantised_files(bf16, from_bf16, wanted), best, tokens, 20));
        // What was not asked for is copied as it is; scales of what was do not stay.
        const TensorStore& tensors = have.tensors();
        const std::string layer = "model.layers.1.";
        EXPECT_EQ(tensors.find(layer + "self_attn.kv_b_proj.weight")->dtype, StorageType::kF8E4M3);
        EXPECT_EQ(tensors.find(layer + "mlp.experts.0.up_proj.weight_scale_inv"), nullptr);
    }
}

TEST(QuantiseCheckpoint, LeavesExpertsInFp8WhereOnlyTheAttentionIsQuantised) {
    const test::TemporaryDirectory source;
    const test::TemporaryDirectory target;
    fp8_builder(fp8_config(), false).write(source.path());
    const ModelFiles files =
        quantised_files(source, target, {.attention = ops::WeightFormat::kInt8});
    EXPECT_EQ(describe(files.config().quantisation), "experts fp8-b128, attention int8");
    EXPECT_EQ(local_logits(files, ops::best_numeric_class(), some_tokens(5), 5).size(), 5u * 96);
}

// What was in bf16 stays so; what is quantised anew is in one format.
TEST(QuantiseCheckpoint, TakesRoutedExpertsThatAloneAreQuantised) {
    const test::TemporaryDirectory source;
    const test::TemporaryDirectory attention;
    const test::TemporaryDirectory experts;
    fp8_builder(fp8_config(), false, "shared_experts").write(source.path());
    const ModelFiles kept =
        quantised_files(source, attention, {.attention = ops::WeightFormat::kInt8});
    EXPECT_EQ(describe(kept.config().quantisation),
              "experts fp8-b128, shared and dense bf16, attention int8");
    EXPECT_EQ(local_logits(kept, ops::best_numeric_class(), some_tokens(5), 5).size(), 5u * 96);
    const ModelFiles made = quantised_files(source, experts, {.experts = ops::WeightFormat::kInt8});
    EXPECT_EQ(describe(made.config().quantisation), "experts int8");
}

// Goal: int8 of another program, its attention included, can be quantised anew; what is not becomes
// bf16, and experts alone are too many for that.
TEST(QuantiseCheckpoint, TakesInt8OfAnotherProgram) {
    const test::TemporaryDirectory source;
    const test::TemporaryDirectory int4;
    const test::TemporaryDirectory int8;
    CheckpointBuilder builder(small_config());
    builder.store_as_int8();
    builder.write(source.path());
    const ModelFiles experts =
        quantised_files(source, int4, {.experts = ops::WeightFormat::kInt4Group32});
    EXPECT_EQ(describe(experts.config().quantisation), "experts int4-g32");
    EXPECT_EQ(local_logits(experts, ops::best_numeric_class(), some_tokens(5), 5).size(), 5u * 96);
    const ModelFiles both = quantised_files(
        source, int8, {.experts = ops::WeightFormat::kInt8, .attention = ops::WeightFormat::kInt8});
    EXPECT_EQ(describe(both.config().quantisation), "experts int8, attention int8");
    EXPECT_EQ(local_logits(both, ops::best_numeric_class(), some_tokens(5), 5).size(), 5u * 96);
    const ModelFiles files = ModelFiles::open(source.path()).value();
    EXPECT_THAT(
        tools::QuantisePlan::make(files, {.attention = ops::WeightFormat::kInt8}).error().message,
        HasSubstr("what is not quantised anew becomes bf16, and the experts are most of it; give "
                  "--experts int8 or int4, too"));
}

TEST(QuantiseCheckpoint, FusedExpertsAndShardsGiveTheSameModel) {
    const QuantisationConfig int4{.experts = ops::WeightFormat::kInt4Group32};
    const QuantisedCheckpoint plain(int4);
    const QuantisedCheckpoint fused(int4, small_config(), true);
    const QuantisedCheckpoint sharded(int4, small_config(), false, 20'000);
    EXPECT_TRUE(fs::exists(plain.path() + "/model.safetensors"));
    EXPECT_TRUE(fs::exists(sharded.path() + "/model-00003.safetensors"));
    const std::vector<int32_t> tokens = some_tokens(20);
    const auto expected = local_logits(plain.files(), ops::best_numeric_class(), tokens, 20);
    EXPECT_EQ(local_logits(fused.files(), ops::best_numeric_class(), tokens, 20), expected);
    EXPECT_EQ(local_logits(sharded.files(), ops::best_numeric_class(), tokens, 20), expected);
    EXPECT_EQ(fused.files().tensors().find("model.layers.1.mlp.experts.gate_up_proj"), nullptr);
}

TEST(QuantiseCheckpoint, RefusesAQuantisedModelAndAFullDirectory) {
    const QuantisedCheckpoint once({.experts = ops::WeightFormat::kInt8});
    EXPECT_THAT(tools::QuantisePlan::make(once.files(), {.experts = ops::WeightFormat::kInt8})
                    .error()
                    .message,
                HasSubstr("is quantised already (experts int8); give the original"));
    EXPECT_THAT(tools::ResultDirectory::open(once.path(), "a job").error().message,
                HasSubstr("holds a whole model already; give --out a new name"));
}

TEST(QuantiseCheckpoint, LeavesOutLayersThatAreNotUsed) {
    CheckpointBuilder builder(small_config());
    builder.add("model.layers.3.eh_proj.weight", {64, 128});
    const test::TemporaryDirectory source;
    const test::TemporaryDirectory target;
    builder.write(source.path());
    ops::SerialParallel serial;
    auto directory = tools::ResultDirectory::open(target.path(), "a job").value();
    const auto made = tools::quantise_checkpoint(ModelFiles::open(source.path()).value(),
                                                 {.experts = ops::WeightFormat::kInt8},
                                                 tools::CompanionFiles(),
                                                 directory,
                                                 serial,
                                                 [](uint64_t) {});
    ASSERT_TRUE(made.ok()) << made.error().message;
    const TensorStore tensors = TensorStore::open(target.path()).value();
    EXPECT_EQ(tensors.find("model.layers.3.eh_proj.weight"), nullptr);
    EXPECT_NE(tensors.find("model.layers.2.self_attn.o_proj.weight"), nullptr);
}

TEST(QuantiseCheckpoint, NamesTheTensorThatCannotBeQuantised) {
    CheckpointBuilder builder(small_config());
    builder.tensor("model.layers.2.mlp.experts.3.up_proj.weight")[5] = ops::from_float(NAN);
    const test::TemporaryDirectory source;
    const test::TemporaryDirectory target;
    builder.write(source.path());
    ops::SerialParallel serial;
    auto directory = tools::ResultDirectory::open(target.path(), "a job").value();
    const auto made = tools::quantise_checkpoint(ModelFiles::open(source.path()).value(),
                                                 {.experts = ops::WeightFormat::kInt4Group32},
                                                 tools::CompanionFiles(),
                                                 directory,
                                                 serial,
                                                 [](uint64_t) {});
    EXPECT_THAT(made.error().message,
                HasSubstr("tensor model.layers.2.mlp.experts.3.up_proj.weight: element [0, 5]"));
    EXPECT_FALSE(fs::exists(target.path() + "/config.json"));
}

}  // namespace
}  // namespace afd::model
