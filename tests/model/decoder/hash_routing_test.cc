// SPDX-License-Identifier: Apache-2.0
//
// Layers that look their experts up by token id, and what LocalDecoder says that routers chose.
// Scores, weights and the live path: tests/golden (v4_router).

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "model/decoder/attention_half.h"
#include "model/decoder/local_decoder.h"
#include "tests/model/checkpoint/checkpoint_builder.h"
#include "tests/temporary_directory.h"

namespace afd::model {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kVocabulary = 96;
constexpr uint32_t kTopK = 3;
constexpr uint32_t kExperts = 8;
constexpr uint32_t kLayers = 3;
constexpr const char* kTable = "model.layers.1.mlp.gate.tid2eid";

// What token `token` gets in slot k; expert 7 twice for some.
int32_t expert_of(size_t token, size_t k) {
    return static_cast<int32_t>(token % 9 == 0 ? kExperts - 1 : (token * 5 + k * 3) % kExperts);
}

std::vector<int32_t> table() {
    std::vector<int32_t> experts;
    for (size_t i = 0; i < kVocabulary * kTopK; ++i) {
        experts.push_back(expert_of(i / kTopK, i % kTopK));
    }
    return experts;
}

// Layer 0 dense, layer 1 by token id, layer 2 by scores.
class HashRouting : public testing::Test {
  protected:
    HashRouting() : builder_(small_config()) {
        builder_.config()["num_hash_layers"] = 2;
        builder_.config()["scoring_func"] = "sqrtsoftplus";
        builder_.remove("model.layers.1.mlp.gate.e_score_correction_bias");
    }

    ModelFiles written() {
        builder_.write(directory_.path());
        auto files = ModelFiles::open(directory_.path());
        EXPECT_TRUE(files.ok()) << files.error().message;
        return std::move(files).value();
    }

    test::TemporaryDirectory directory_;
    CheckpointBuilder builder_;
    ops::SerialParallel serial_;
};

// [tokens, layers, top_k] and the logits, `chunk` tokens at a time.
struct Decoded {
    std::vector<int32_t> routing;
    std::vector<float> logits;

    Decoded(const ModelFiles& files, const std::vector<int32_t>& tokens, size_t chunk)
        : routing(tokens.size() * kLayers * kTopK, -7), logits(tokens.size() * kVocabulary) {
        ops::SerialParallel serial;
        auto decoder = LocalDecoder::load(files,
                                          ops::best_numeric_class(),
                                          static_cast<uint32_t>(chunk),
                                          static_cast<uint32_t>(tokens.size()),
                                          serial)
                           .value();
        for (size_t done = 0; done < tokens.size(); done += chunk) {
            const size_t count = std::min(chunk, tokens.size() - done);
            const auto rows = ops::make_rows(&logits[done * kVocabulary], count, kVocabulary);
            const auto appended = decoder.append(
                std::span(tokens).subspan(done, count), rows, &routing[done * kLayers * kTopK]);
            EXPECT_TRUE(appended.ok()) << appended.error().message;
        }
    }
};

// Goal: a hash layer takes the table's experts, whatever the chunks; another layer's choice is one
// of MoeGatingTopK: different experts in range.
TEST_F(HashRouting, ExpertsAreThoseOfTheTable) {
    builder_.add_integers(kTable, {kVocabulary, kTopK}, table());
    const ModelFiles files = written();
    std::vector<int32_t> tokens;
    for (int32_t i = 0; i < 50; ++i) tokens.push_back(i * 11 % static_cast<int32_t>(kVocabulary));
    const Decoded whole(files, tokens, tokens.size());
    for (size_t t = 0; t < tokens.size(); ++t) {
        const int32_t* row = &whole.routing[t * kLayers * kTopK];
        EXPECT_EQ(std::vector<int32_t>(row, row + kTopK), (std::vector<int32_t>{0, -1, -1}));
        for (size_t k = 0; k < kTopK; ++k) {
            EXPECT_EQ(row[kTopK + k], expert_of(static_cast<size_t>(tokens[t]), k)) << t;
        }
        const std::set<int32_t> chosen(row + 2 * kTopK, row + 3 * kTopK);
        EXPECT_EQ(chosen.size(), kTopK);
        EXPECT_GE(*chosen.begin(), 0);
        EXPECT_LT(*chosen.rbegin(), static_cast<int32_t>(kExperts));
    }
    const Decoded apart(files, tokens, 7);
    EXPECT_EQ(apart.routing, whole.routing);
    EXPECT_EQ(apart.logits, whole.logits);
}

// Goal: with router = ffn every MoE layer is routed by exactly one side, hash layers by the one
// that has the token ids.
TEST_F(HashRouting, OnlyTheSideWithTokenIdsRoutesHashLayers) {
    builder_.add_integers(kTable, {kVocabulary, kTopK}, table());
    const ModelFiles files = written();
    const auto half =
        AttentionHalf::load(files, ops::best_numeric_class(), RouterUse::kLeave).value();
    const Router ffn =
        Router::load(files, ops::best_numeric_class(), GateSet::kOtherLayers).value();
    EXPECT_TRUE(half.is_routed(0));
    EXPECT_TRUE(half.is_routed(1));
    EXPECT_FALSE(half.is_routed(2));
    EXPECT_FALSE(ffn.routes(0));
    EXPECT_FALSE(ffn.routes(1));
    EXPECT_TRUE(ffn.routes(2));
}

TEST_F(HashRouting, TablesThatDoNotFitAreRefused) {
    const auto message = [this] {
        const ModelFiles files = written();
        const auto router = Router::load(files, ops::NumericClass::kPortable);
        return router.ok() ? std::string("loaded") : router.error().message;
    };
    EXPECT_THAT(message(), HasSubstr(std::string("tensor ") + kTable + " [96, 3] is missing"));
    std::vector<int32_t> experts = table();
    experts[5 * kTopK + 1] = kExperts;
    builder_.add_integers(kTable, {kVocabulary, kTopK}, experts);
    EXPECT_EQ(message(),
              "model.layers.1.mlp.gate.tid2eid: token 5 names expert 8; allowed are 0 to 7");
    builder_.remove(kTable);
    experts[5 * kTopK + 1] = -1;
    builder_.add_integers(kTable, {kVocabulary, kTopK}, experts);
    EXPECT_THAT(message(), HasSubstr("token 5 names expert -1"));
    builder_.remove(kTable);
    builder_.add_integers(kTable, {kTopK, kVocabulary}, table());
    EXPECT_THAT(message(), HasSubstr("expected shape [96, 3], found [3, 96]"));
    builder_.remove(kTable);
    builder_.add(kTable, {kVocabulary, kTopK});
    EXPECT_THAT(message(), HasSubstr("dtype is BF16; supported: I32, I64"));
    builder_.remove(kTable);
    builder_.add_integers(kTable, {kVocabulary, kTopK}, table());
    EXPECT_EQ(message(), "loaded");
}

}  // namespace
}  // namespace afd::model
