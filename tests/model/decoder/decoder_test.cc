// SPDX-License-Identifier: Apache-2.0
//
// Both whole decoders over random checkpoints. The reference decoder itself is held against an
// independent implementation by tests/golden.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "model/checkpoint/tensor_store.h"
#include "model/decoder/local_decoder.h"
#include "model/mla/mla_tensors.h"
#include "model/reference/reference_decoder.h"
#include "tests/model/checkpoint/checkpoint_builder.h"
#include "tests/temporary_directory.h"

namespace afd::model {
namespace {

using ::testing::HasSubstr;
using ::testing::Lt;

std::vector<int32_t> random_tokens(size_t count, uint32_t vocab_size) {
    std::mt19937 generator(11);
    std::vector<int32_t> tokens(count);
    for (int32_t& token : tokens) token = static_cast<int32_t>(generator() % vocab_size);
    return tokens;
}

// Runs tasks last to first and pretends to have three threads.
class BackwardParallel final : public ops::Parallel {
  public:
    unsigned num_threads() const override { return 3; }
    void run(size_t num_tasks, ops::FunctionRef<void(size_t, unsigned)> body) override {
        for (size_t task = num_tasks; task-- > 0;) body(task, static_cast<unsigned>(task % 3));
    }
};

ModelFiles opened(const test::TemporaryDirectory& directory,
                  ops::KvDtype kv = ops::KvDtype::kBf16) {
    auto files = ModelFiles::open(directory.path(), kv);
    EXPECT_TRUE(files.ok()) << files.error().message;
    return std::move(files).value();
}

// Logits of `tokens`, computed in chunks of `chunk`.
Result<std::vector<float>> local_logits(const ModelFiles& files,
                                        ops::NumericClass numeric_class,
                                        const std::vector<int32_t>& tokens,
                                        size_t chunk,
                                        ops::Parallel& parallel) {
    const size_t vocab_size = files.config().vocab_size;
    AFD_ASSIGN(LocalDecoder decoder,
               LocalDecoder::load(files,
                                  numeric_class,
                                  static_cast<uint32_t>(chunk),
                                  static_cast<uint32_t>(tokens.size()),
                                  parallel));
    std::vector<float> logits(tokens.size() * vocab_size);
    for (size_t done = 0; done < tokens.size(); done += chunk) {
        const size_t count = std::min(chunk, tokens.size() - done);
        AFD_TRY(
            decoder.append(std::span(tokens).subspan(done, count),
                           ops::make_rows(logits.data() + done * vocab_size, count, vocab_size)));
    }
    return logits;
}

std::vector<float> fast_logits(const ModelFiles& files,
                               const std::vector<int32_t>& tokens,
                               size_t chunk = 64,
                               ops::NumericClass numeric_class = ops::best_numeric_class()) {
    ops::SerialParallel serial;
    auto logits = local_logits(files, numeric_class, tokens, chunk, serial);
    EXPECT_TRUE(logits.ok()) << logits.error().message;
    return std::move(logits).value();
}

// max|a - b| / max|b|
double relative_difference(const std::vector<float>& a, const std::vector<float>& b) {
    double difference = 0;
    double largest = 0;
    for (size_t i = 0; i < b.size(); ++i) {
        difference = std::max(difference, std::abs(static_cast<double>(a[i]) - b[i]));
        largest = std::max(largest, std::abs(static_cast<double>(b[i])));
    }
    return std::isfinite(difference) ? difference / largest
                                     : std::numeric_limits<double>::infinity();
}

// Promise 1 at the level of the whole decoder: chunks, threads and their order change no bit.
TEST(LocalDecoder, ChunksAndThreadsChangeNoBit) {
    const test::TemporaryDirectory directory;
    CheckpointBuilder(small_config()).write(directory.path());
    const ModelFiles files = opened(directory);
    const std::vector<int32_t> tokens = random_tokens(150, files.config().vocab_size);
    for (const ops::NumericClass numeric_class : ops::supported_numeric_classes()) {
        SCOPED_TRACE(ops::name_of(numeric_class));
        const std::vector<float> whole = fast_logits(files, tokens, 150, numeric_class);
        for (const size_t chunk : {1, 7, 64, 100}) {
            EXPECT_EQ(fast_logits(files, tokens, chunk, numeric_class), whole)
                << "chunks of " << chunk;
        }
        BackwardParallel backward;
        EXPECT_EQ(local_logits(files, numeric_class, tokens, 50, backward).value(), whole);
    }
}

TEST(LocalDecoder, ResetForgetsTheSequence) {
    const test::TemporaryDirectory directory;
    CheckpointBuilder(small_config()).write(directory.path());
    const ModelFiles files = opened(directory);
    const size_t vocab_size = files.config().vocab_size;
    const std::vector<int32_t> tokens = random_tokens(20, files.config().vocab_size);
    ops::SerialParallel serial;
    auto decoder = LocalDecoder::load(files, ops::best_numeric_class(), 32, 32, serial).value();
    std::vector<float> first(20 * vocab_size);
    std::vector<float> second(20 * vocab_size);
    ASSERT_TRUE(decoder.append(tokens, ops::make_rows(first.data(), 20, vocab_size)).ok());
    decoder.reset();
    ASSERT_TRUE(decoder.append(tokens, ops::make_rows(second.data(), 20, vocab_size)).ok());
    EXPECT_EQ(first, second);
}

// Goal: a quantised cache is rounded where the reference rounds it, and expanded so. Method and
// bound as below; a value that bf16 rounds to the other neighbour can take the next step of int8 or
// e4m3, which softmax averages over the positions. The control: without its rounding the reference
// is farther away.
TEST(LocalDecoder, AgreesWithTheReferenceWithAQuantisedCache) {
    nlohmann::json config = small_config();
    config["num_experts_per_tok"] = 8;
    config["n_group"] = 1;
    config["topk_group"] = 1;
    const test::TemporaryDirectory directory;
    CheckpointBuilder(config).write(directory.path());
    const auto logits_of = [](const ModelFiles& files, const std::vector<int32_t>& tokens) {
        return ReferenceDecoder::load(files)
            .value()
            .logits(tokens, ops::reference::Rounding::kBf16)
            .value();
    };
    const ModelFiles plain = opened(directory);
    const std::vector<int32_t> tokens = random_tokens(130, plain.config().vocab_size);
    const auto unquantised = logits_of(plain, tokens);
    const auto refused = ModelFiles::open(directory.path(), ops::KvDtype::kInt8Channel);
    ASSERT_FALSE(refused.ok());
    EXPECT_THAT(refused.error().message,
                HasSubstr("/kv_scales.safetensors with the factors of the channels is missing"));
    write_kv_factors(directory.path(), plain.config());
    for (const ops::KvDtype kv :
         {ops::KvDtype::kInt8, ops::KvDtype::kFp8, ops::KvDtype::kInt8Channel}) {
        const ModelFiles files = opened(directory, kv);
        const auto expected = logits_of(files, tokens);
        for (const ops::NumericClass numeric_class : ops::supported_numeric_classes()) {
            SCOPED_TRACE(std::string(ops::name_of(kv)) + " " +
                         std::string(ops::name_of(numeric_class)));
            const auto actual = fast_logits(files, tokens, 64, numeric_class);
            EXPECT_THAT(relative_difference(actual, expected), Lt(0x1p-6));
            EXPECT_GT(relative_difference(actual, unquantised),
                      relative_difference(actual, expected));
            EXPECT_EQ(fast_logits(files, tokens, 7, numeric_class), actual);
        }
    }
}

// The same with the residual stream in fp32. Oracle: the reference, at the rounding points of that
// class; it is nearer to the exact logits than the stream in bf16.
TEST(LocalDecoder, AnFp32ResidualIsAClassOfItsOwnAndMoreExact) {
    nlohmann::json config = small_config();
    config["num_experts_per_tok"] = 8;
    config["n_group"] = 1;
    config["topk_group"] = 1;
    const test::TemporaryDirectory directory;
    CheckpointBuilder(config).write(directory.path());
    ModelFiles files = opened(directory);
    const std::vector<int32_t> tokens = random_tokens(130, files.config().vocab_size);
    const std::vector<float> narrow = fast_logits(files, tokens);
    files.set_residual(ResidualType::kFp32);
    const auto reference = ReferenceDecoder::load(files).value();
    const auto expected = reference.logits(tokens, ops::reference::Rounding::kBf16).value();
    const auto exact = reference.logits(tokens, ops::reference::Rounding::kNone).value();
    for (const ops::NumericClass numeric_class : ops::supported_numeric_classes()) {
        SCOPED_TRACE(ops::name_of(numeric_class));
        const auto whole = fast_logits(files, tokens, 130, numeric_class);
        for (const size_t chunk : {1, 7, 64}) {
            EXPECT_EQ(fast_logits(files, tokens, chunk, numeric_class), whole) << chunk;
        }
        BackwardParallel backward;
        EXPECT_EQ(local_logits(files, numeric_class, tokens, 50, backward).value(), whole);
        EXPECT_THAT(relative_difference(whole, expected), Lt(0x1p-6));
        EXPECT_THAT(relative_difference(whole, exact), Lt(relative_difference(narrow, exact)));
        EXPECT_NE(whole, narrow);
    }
}

// Goal: the fast path computes what the reference computes, at the same rounding points. Method:
// every expert is chosen, so that no near tie of the router can turn a difference in the last bit
// into another expert. Bound: both round the same quantities to bf16 (2^-9 relative), but sums in
// another order may round to the neighbour; the residual of 3 layers collects a few such steps of
// 2^-8 each: measured 2^-7 of the largest logit, bound 2^-6.
TEST(LocalDecoder, AgreesWithTheReferenceWhereRoutingCannotFlip) {
    for (const bool has_low_rank : {true, false}) {
        nlohmann::json config = small_config();
        config["num_experts_per_tok"] = 8;
        config["n_group"] = 1;
        config["topk_group"] = 1;
        if (!has_low_rank) config["q_lora_rank"] = nullptr;
        const test::TemporaryDirectory directory;
        CheckpointBuilder(config).write(directory.path());
        const ModelFiles files = opened(directory);
        const std::vector<int32_t> tokens = random_tokens(130, files.config().vocab_size);
        const auto reference = ReferenceDecoder::load(files);
        ASSERT_TRUE(reference.ok()) << reference.error().message;
        const auto expected =
            reference.value().logits(tokens, ops::reference::Rounding::kBf16).value();
        const auto exact =
            reference.value().logits(tokens, ops::reference::Rounding::kNone).value();
        for (const ops::NumericClass numeric_class : ops::supported_numeric_classes()) {
            const auto actual = fast_logits(files, tokens, 64, numeric_class);
            EXPECT_THAT(relative_difference(actual, expected), Lt(0x1p-6));
            EXPECT_THAT(relative_difference(actual, exact), Lt(0x1p-6));
            RecordProperty(std::string("difference_") + (has_low_rank ? "q_lora" : "q") + "_" +
                               std::string(ops::name_of(numeric_class)),
                           std::to_string(relative_difference(actual, expected)));
        }
    }
}

// With a real choice of experts a few rows may meet a near tie and differ more; the median row is
// held to the bound above.
TEST(LocalDecoder, AgreesWithTheReferenceInTheMedianRow) {
    const test::TemporaryDirectory directory;
    CheckpointBuilder(small_config(), 5).write(directory.path());
    const ModelFiles files = opened(directory);
    const size_t vocab_size = files.config().vocab_size;
    const std::vector<int32_t> tokens = random_tokens(130, files.config().vocab_size);
    const auto expected = ReferenceDecoder::load(files)
                              .value()
                              .logits(tokens, ops::reference::Rounding::kBf16)
                              .value();
    const auto actual = fast_logits(files, tokens);
    std::vector<double> rows;
    for (size_t t = 0; t < tokens.size(); ++t) {
        const auto row = [&](const std::vector<float>& logits) {
            const auto begin = logits.begin() + static_cast<std::ptrdiff_t>(t * vocab_size);
            return std::vector<float>(begin, begin + static_cast<std::ptrdiff_t>(vocab_size));
        };
        rows.push_back(relative_difference(row(actual), row(expected)));
    }
    std::ranges::nth_element(rows, rows.begin() + 65);
    EXPECT_THAT(rows[65], Lt(0x1p-6));
}

TEST(LocalDecoder, ReadsFusedExpertsLikeSeparateOnes) {
    const test::TemporaryDirectory separate;
    const test::TemporaryDirectory fused;
    CheckpointBuilder builder(small_config());
    builder.write(separate.path());
    builder.fuse_experts();
    builder.write(fused.path());
    const std::vector<int32_t> tokens = random_tokens(40, 96);
    EXPECT_EQ(fast_logits(opened(fused), tokens), fast_logits(opened(separate), tokens));
}

TEST(LocalDecoder, IgnoresTensorsOfExtraPredictionLayers) {
    const test::TemporaryDirectory plain;
    const test::TemporaryDirectory extra;
    CheckpointBuilder builder(small_config());
    builder.write(plain.path());
    builder.config()["num_nextn_predict_layers"] = 1;
    builder.add("model.layers.3.eh_proj.weight", {64, 128});
    builder.add("model.layers.3.embed_tokens.weight", {96, 64});
    builder.add("model.layers.0.self_attn.rotary_emb.inv_freq", {4});
    builder.write(extra.path());
    const std::vector<int32_t> tokens = random_tokens(10, 96);
    EXPECT_EQ(fast_logits(opened(extra), tokens), fast_logits(opened(plain), tokens));
    EXPECT_THAT(opened(extra).unused_text(),
                HasSubstr(": 2 tensors (0.0 MiB) of layers from 3 on are ignored: "
                          "num_hidden_layers is 3, and multi-token prediction is not served"));
    EXPECT_EQ(opened(plain).unused_text(), "");
}

// Goal: the text model of a model of text and images is the same model. Oracle: it alone.
TEST(LocalDecoder, ReadsATextModelAmongOtherParts) {
    const test::TemporaryDirectory alone;
    CheckpointBuilder(small_config()).write(alone.path());
    const std::vector<int32_t> tokens = random_tokens(10, 96);
    const auto expected = fast_logits(opened(alone), tokens);
    for (const NamePrefix& prefix : kWrappedNames) {
        const test::TemporaryDirectory wrapped;
        CheckpointBuilder builder(small_config());
        builder.wrap(prefix);
        builder.write(wrapped.path());
        const ModelFiles files = opened(wrapped);
        EXPECT_EQ(fast_logits(files, tokens), expected) << prefix.stored;
        EXPECT_EQ(files.tensors().list().size(), opened(alone).tensors().list().size());
        EXPECT_THAT(files.unused_text(),
                    HasSubstr(": 1 tensors (0.0 MiB) of other parts than the text model are "
                              "ignored: only text is served"));
    }
}

TEST(LocalDecoder, NamesAMissingTensorOfATextModelAsItIsStored) {
    const test::TemporaryDirectory directory;
    CheckpointBuilder builder(small_config());
    builder.remove("model.norm.weight");
    builder.wrap(kWrappedNames[1]);
    builder.write(directory.path());
    ops::SerialParallel serial;
    const auto decoder =
        local_logits(opened(directory), ops::NumericClass::kPortable, {1}, 1, serial);
    ASSERT_FALSE(decoder.ok());
    EXPECT_THAT(decoder.error().message,
                HasSubstr("tensor model.language_model.norm.weight [64] is missing"));
}

// Which of two heads is meant nobody says.
TEST(LocalDecoder, RefusesATextModelWithAHeadWithinAndOneBeside) {
    const test::TemporaryDirectory directory;
    CheckpointBuilder builder(small_config());
    builder.wrap(kWrappedNames[0]);
    builder.add("language_model.lm_head.weight", {96, 64});
    builder.write(directory.path());
    const auto files = ModelFiles::open(directory.path());
    ASSERT_FALSE(files.ok());
    EXPECT_EQ(files.error().code, Code::kDataLoss);
    EXPECT_THAT(
        files.error().message,
        HasSubstr("tensor lm_head.weight is there twice, within a larger model (as "
                  "language_model.lm_head.weight) and beside it; fetch the model again, or write "
                  "its files without one of the two"));
}

// Factors of a cache are in a file of their own, under plain names.
TEST(LocalDecoder, NamesAFactorOfATextModelAsItIsStored) {
    const test::TemporaryDirectory directory;
    CheckpointBuilder builder(small_config());
    builder.wrap(kWrappedNames[0]);
    builder.write(directory.path());
    write_kv_factors(directory.path(), opened(directory).config());
    const ModelFiles files = opened(directory, ops::KvDtype::kInt8Channel);
    const auto error_of = [&](const std::string& name) {
        return files.tensors().read_f32(name, std::array<uint64_t, 1>{7}).error().message;
    };
    EXPECT_THAT(error_of(key_scale_name(0)),
                HasSubstr("/kv_scales.safetensors: tensor " + key_scale_name(0) +
                          ": expected shape [7], found ["));
    EXPECT_THAT(error_of("lm_head.weight"),
                HasSubstr("/model.safetensors: tensor lm_head.weight: expected shape [7]"));
    EXPECT_THAT(error_of("model.norm.weight"),
                HasSubstr("/model.safetensors: tensor language_model.model.norm.weight: expected"));
}

TEST(LocalDecoder, UsesTheEmbeddingAsHeadWhereTied) {
    nlohmann::json config = small_config();
    config["tie_word_embeddings"] = true;
    const test::TemporaryDirectory tied;
    CheckpointBuilder builder(config);
    builder.write(tied.path());
    builder.config()["tie_word_embeddings"] = false;
    builder.add("lm_head.weight", {96, 64});
    builder.tensor("lm_head.weight") = builder.tensor("model.embed_tokens.weight");
    const test::TemporaryDirectory copied;
    builder.write(copied.path());
    const std::vector<int32_t> tokens = random_tokens(10, 96);
    EXPECT_EQ(fast_logits(opened(tied), tokens), fast_logits(opened(copied), tokens));
}

TEST(LocalDecoder, NamesTensorExpectedAndFoundShapeAtLoad) {
    ops::SerialParallel serial;
    const auto load_error = [&](const char* name, auto change) {
        const test::TemporaryDirectory directory;
        CheckpointBuilder builder(small_config());
        change(builder, name);
        builder.write(directory.path());
        const ModelFiles files = opened(directory);
        const auto decoder = LocalDecoder::load(files, ops::NumericClass::kPortable, 8, 8, serial);
        EXPECT_FALSE(decoder.ok()) << name;
        return decoder.ok() ? std::string() : decoder.error().message;
    };
    const auto remove = [](CheckpointBuilder& builder, const char* name) { builder.remove(name); };
    const auto flip = [](CheckpointBuilder& builder, const char* name) {
        builder.reshape(name, {builder.tensor(name).size() / 8, 8});
    };
    for (const char* name : {"model.embed_tokens.weight",
                             "model.norm.weight",
                             "lm_head.weight",
                             "model.layers.0.self_attn.q_b_proj.weight",
                             "model.layers.0.mlp.down_proj.weight",
                             "model.layers.2.mlp.gate.e_score_correction_bias",
                             "model.layers.1.mlp.experts.7.up_proj.weight",
                             "model.layers.2.mlp.shared_experts.gate_proj.weight"}) {
        EXPECT_THAT(load_error(name, remove), HasSubstr(std::string("tensor ") + name));
        EXPECT_THAT(load_error(name, remove), HasSubstr("is missing from the weights"));
        EXPECT_THAT(load_error(name, flip), HasSubstr(std::string("tensor ") + name));
        EXPECT_THAT(load_error(name, flip), HasSubstr("expected shape ["));
        EXPECT_THAT(load_error(name, flip), HasSubstr(", found ["));
    }
}

TEST(LocalDecoder, EndsWithAnErrorWhenTheRouterMeetsANan) {
    const test::TemporaryDirectory directory;
    CheckpointBuilder builder(small_config());
    builder.tensor("model.embed_tokens.weight")[5 * 64] = ops::from_float(NAN);
    builder.write(directory.path());
    ops::SerialParallel serial;
    const auto logits =
        local_logits(opened(directory), ops::best_numeric_class(), {1, 2, 5, 3}, 4, serial);
    ASSERT_FALSE(logits.ok());
    EXPECT_EQ(logits.error().code, Code::kInternal);
    EXPECT_THAT(logits.error().message, HasSubstr("the router of layer 1 met a NaN at position 2"));
}

TEST(LocalDecoder, RefusesTokensAndLengthsOutOfRange) {
    const test::TemporaryDirectory directory;
    CheckpointBuilder(small_config()).write(directory.path());
    const ModelFiles files = opened(directory);
    ops::SerialParallel serial;
    const auto error = [&](const std::vector<int32_t>& tokens) {
        return local_logits(files, ops::NumericClass::kPortable, tokens, 4, serial).error().message;
    };
    EXPECT_EQ(error({1, 96}), "token 96; allowed: 0 to 95");
    EXPECT_EQ(error({-1}), "token -1; allowed: 0 to 95");
    EXPECT_THAT(error(std::vector<int32_t>(600, 1)), HasSubstr("the context holds 512"));
    const auto reference = ReferenceDecoder::load(files).value();
    const auto rounding = ops::reference::Rounding::kNone;
    EXPECT_THAT(reference.logits(std::vector<int32_t>{7, 99}, rounding).error().message,
                HasSubstr("token 99 at position 1; allowed: 0 to 95"));
    EXPECT_THAT(reference.logits(std::vector<int32_t>(600, 1), rounding).error().message,
                HasSubstr("the context holds 512"));
}

TEST(ModelFiles, IdentityFollowsConfigAndWeights) {
    CheckpointBuilder builder(small_config());
    const auto identity = [&builder] {
        const test::TemporaryDirectory directory;
        builder.write(directory.path());
        return opened(directory).identity();
    };
    const std::string first = identity();
    EXPECT_EQ(first.size(), 16u);
    EXPECT_EQ(identity(), first);
    builder.tensor("model.norm.weight")[63].bits ^= 1;
    const std::string second = identity();
    EXPECT_NE(second, first);
    builder.config()["routed_scaling_factor"] = 2.0;
    EXPECT_NE(identity(), second);
}

TEST(ModelFiles, SaysWhichFileIsMissing) {
    const test::TemporaryDirectory directory;
    const auto files = ModelFiles::open(directory.path());
    ASSERT_FALSE(files.ok());
    EXPECT_EQ(files.error().code, Code::kNotFound);
    EXPECT_THAT(files.error().message, HasSubstr("/config.json: no such file; give the directory"));
}

}  // namespace
}  // namespace afd::model
