// SPDX-License-Identifier: Apache-2.0
#include "model/sampling/logit_changes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>

#include "model/sampling/sampler.h"
#include "proto/sampling.pb.h"

namespace afd::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr float kUnlikely = -std::numeric_limits<float>::infinity();

// The formulas of logit_changes.h, token by token over the whole vocabulary.
std::vector<float> changed_by_hand(const std::vector<float>& logits,
                                   const SamplingParams& params,
                                   const TokenHistory& history) {
    std::vector<float> changed = logits;
    for (uint32_t id = 0; id < changed.size(); ++id) {
        float& logit = changed[id];
        if (std::ranges::find(history.banned, id) != history.banned.end()) logit = kUnlikely;
        for (const TokenBias& entry : params.logit_bias) {
            if (entry.id == id) logit = logit + entry.bias;
        }
        const auto output = history.tokens.subspan(history.num_prompt_tokens);
        if (std::ranges::find(history.tokens, id) != history.tokens.end()) {
            logit =
                logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
        }
        const auto count = std::ranges::count(output, id);
        if (count > 0) {
            logit = logit - params.frequency_penalty * static_cast<float>(count);
            logit = logit - params.presence_penalty;
        }
    }
    return changed;
}

// Goal: every combination changes what it should and nothing else, also right after another one.
// Method: random rows, histories with many repetitions, settings of which about half are off.
// Oracle: changed_by_hand(), to the bit.
TEST(LogitChanges, AreThoseOfTheFormulas) {
    constexpr size_t kVocab = 50;
    std::mt19937 random(7);
    std::uniform_real_distribution<float> value(-8, 8);
    const auto maybe = [&](float off, float on) { return random() % 2 == 0 ? off : on; };
    LogitChanges changes(kVocab);
    for (int i = 0; i < 500; ++i) {
        std::vector<float> logits(kVocab);
        for (float& logit : logits) logit = value(random);
        logits[3] = 0;
        std::vector<uint32_t> tokens(random() % 60);
        for (uint32_t& token : tokens) token = static_cast<uint32_t>(random()) % kVocab;
        SamplingParams params{.repetition_penalty = maybe(1, 1.3F),
                              .presence_penalty = maybe(0, value(random) / 4),
                              .frequency_penalty = maybe(0, value(random) / 4)};
        if (i % 3 == 0) params.logit_bias = {{3, 5.5F}, {49, -100}};
        const std::vector<uint32_t> banned = {0, 7};
        const TokenHistory history{
            .tokens = tokens,
            .num_prompt_tokens = tokens.empty() ? 0 : random() % (tokens.size() + 1),
            .banned = i % 5 == 0 ? std::span(banned) : std::span<const uint32_t>()};
        const auto expected = changed_by_hand(logits, params, history);
        const auto found = changes.apply(logits, params, history);
        ASSERT_TRUE(std::ranges::equal(expected, found)) << "round " << i;
        EXPECT_EQ(LogitChanges::is_needed(params, history),
                  params.repetition_penalty != 1 || params.presence_penalty != 0 ||
                      params.frequency_penalty != 0 || i % 3 == 0 || i % 5 == 0);
    }
}

TEST(LogitChanges, PresenceAndFrequencyLookAtTheOutputOnly) {
    LogitChanges changes(4);
    const std::vector<uint32_t> tokens = {0, 0, 1, 1, 2};
    const TokenHistory history{.tokens = tokens, .num_prompt_tokens = 3};
    const SamplingParams params{.presence_penalty = 0.5F, .frequency_penalty = 0.25F};
    EXPECT_THAT(changes.apply(std::vector<float>(4, 1), params, history),
                ElementsAre(1, 0.25F, 0.25F, 1));
    const SamplingParams repetition{.repetition_penalty = 2};
    EXPECT_THAT(changes.apply(std::vector<float>{4, -4, 1, 3}, repetition, history),
                ElementsAre(2, -8, 0.5F, 3));
}

TEST(SamplerWithChanges, ChoosesByTheChangedAndReportsTheRawLogits) {
    Sampler sampler(4);
    const std::vector<float> logits = {1, 3, 2, 0};
    const float raw = sampler.logprob(logits, 2).value();
    std::array<TokenLogprob, 3> top{};
    const std::vector<uint32_t> banned = {1};
    const auto greedy = sampler.sample(logits, {.temperature = 0}, 5, {.banned = banned}, top);
    ASSERT_TRUE(greedy.ok());
    EXPECT_EQ(greedy.value().id, 2U);
    EXPECT_EQ(greedy.value().logprob, raw);
    EXPECT_EQ(top[0].id, 1U) << "the most likely ones are the model's own";
    EXPECT_EQ(top[1].id, 2U);
    EXPECT_EQ(top[1].logprob, raw);
    EXPECT_EQ(top[2].id, 0U);
    for (uint64_t position = 0; position < 200; ++position) {
        const auto drawn = sampler.sample(logits, {.seed = 1, .logit_bias = {{3, 100}}}, position);
        EXPECT_EQ(drawn.value().id, 3U);
    }
}

TEST(SamplerWithChanges, ChoicesOfOneSeedDiffer) {
    Sampler sampler(64);
    const std::vector<float> flat(64, 0);
    int num_equal = 0;
    for (uint64_t position = 0; position < 100; ++position) {
        const auto first = sampler.sample(flat, {.seed = 9, .choice = 0}, position).value().id;
        const auto second = sampler.sample(flat, {.seed = 9, .choice = 1}, position).value().id;
        num_equal += first == second ? 1 : 0;
    }
    // Of two independent draws one in 64 is equal.
    EXPECT_LT(num_equal, 20);
}

TEST(SamplerWithChanges, TopIsWhatAStableSortPutsFirst) {
    std::mt19937 random(3);
    Sampler sampler(200);
    for (int i = 0; i < 50; ++i) {
        std::vector<float> logits(200);
        for (float& logit : logits) logit = static_cast<float>(random() % 12);
        std::vector<uint32_t> ids(200);
        for (uint32_t id = 0; id < 200; ++id) ids[id] = id;
        std::ranges::stable_sort(ids,
                                 [&](uint32_t a, uint32_t b) { return logits[a] > logits[b]; });
        std::array<TokenLogprob, 20> top{};
        ASSERT_TRUE(sampler.sample(logits, {}, 1, {}, top).ok());
        for (size_t n = 0; n < top.size(); ++n) {
            EXPECT_EQ(top[n].id, ids[n]);
            EXPECT_EQ(top[n].logprob, sampler.logprob(logits, ids[n]).value());
        }
    }
}

// Goal: of a mask only tokens that it has are sampled, whatever else changes the logits; those keep
// their odds and their log probabilities. Method: a bias and penalties that favour the others.
// Oracle: a vocabulary that has no others; the raw row.
TEST(SamplerWithChanges, OnlyTokensOfTheMaskAreSampled) {
    constexpr size_t kVocab = 130;
    std::mt19937 random(4);
    std::uniform_real_distribution<float> value(-3, 3);
    std::vector<float> logits(kVocab);
    for (float& logit : logits) logit = value(random);
    const std::vector<uint64_t> mask = {1ULL << 5 | 1ULL << 63, 1ULL << 0, 1ULL << 1};
    const std::vector<uint32_t> allowed = {5, 63, 64, 129};
    const std::vector<uint32_t> tokens = {5, 5, 64};
    Sampler sampler(kVocab);
    Sampler small(allowed.size());
    LogitChanges changes(kVocab);
    for (uint64_t position = 0; position < 200; ++position) {
        SamplingParams params{.temperature = position % 3 == 0 ? 0.0f : 0.5f,
                              .top_k = static_cast<uint32_t>(position % 7),
                              .top_p = position % 2 == 0 ? 0.9f : 1.0f,
                              .min_p = position % 5 == 0 ? 0.3f : 0.0f,
                              .seed = 3,
                              .presence_penalty = 1,
                              .logit_bias = {{7, 100}, {63, 0.5f}}};
        const TokenHistory history{.tokens = tokens, .num_prompt_tokens = 1};
        TokenHistory masked = history;
        masked.allowed = mask;
        const auto drawn = sampler.sample(logits, params, position, masked);
        ASSERT_TRUE(drawn.ok()) << drawn.error().message;
        EXPECT_THAT(allowed, testing::Contains(drawn.value().id));
        const auto changed = changes.apply(logits, params, history);
        std::vector<float> left;
        for (const uint32_t id : allowed) left.push_back(changed[id]);
        params.presence_penalty = 0;
        params.logit_bias.clear();
        const uint32_t index = small.sample(left, params, position).value().id;
        EXPECT_EQ(drawn.value().id, allowed[index]);
        EXPECT_EQ(drawn.value().logprob, sampler.logprob(logits, drawn.value().id).value());
    }
}

TEST(SamplerWithChanges, AllTokensBannedIsAnErrorThatSaysSo) {
    Sampler sampler(2);
    const std::vector<uint32_t> banned = {0, 1};
    const auto none = sampler.sample(std::vector<float>{1, 2}, {}, 0, {.banned = banned});
    ASSERT_FALSE(none.ok());
    EXPECT_THAT(none.error().message, HasSubstr("min_tokens bans every token"));
}

TEST(SamplingSettingsRanges, PenaltiesAndBiasesAreNamedWithTheirValue) {
    const auto refusal = [](const auto& set) {
        SamplingSettings settings;
        set(settings);
        const auto valid = validate(settings, 100);
        return valid.ok() ? "accepted" : valid.error().message;
    };
    EXPECT_EQ(refusal([](auto& s) { s.set_repetition_penalty(-1); }),
              "repetition_penalty = -1: must be from 0.01 to 100 (1 or 0: off)");
    EXPECT_EQ(refusal([](auto& s) { s.set_presence_penalty(2.5F); }),
              "presence_penalty = 2.5: must be from -2 to 2");
    EXPECT_EQ(refusal([](auto& s) { s.set_frequency_penalty(NAN); }),
              "frequency_penalty = nan: must be from -2 to 2");
    const auto bias = [&](uint32_t id, float value) {
        return refusal([&](auto& s) {
            s.add_logit_bias()->set_token_id(7);
            s.add_logit_bias()->set_token_id(id);
            s.mutable_logit_bias(1)->set_bias(value);
        });
    };
    EXPECT_EQ(bias(100, 1),
              "logit_bias of token 100: the id must be below the vocabulary size 100");
    EXPECT_EQ(bias(8, 101), "logit_bias of token 8 = 101: must be from -100 to 100");
    EXPECT_EQ(bias(7, 1), "logit_bias names token 7 more than once: give it one bias");
    EXPECT_EQ(bias(99, -100), "accepted");
    EXPECT_EQ(refusal([](auto& s) {
                  for (uint32_t id = 0; id <= kLogitBiasesMax; ++id) s.add_logit_bias();
              }),
              "logit_bias has 1025 tokens: at most 1024 are taken");
}

TEST(SamplingSettingsRanges, ReachTheParametersEachInItsPlace) {
    SamplingSettings settings;
    EXPECT_EQ(to_params(settings).repetition_penalty, 1.0F) << "0 means off";
    settings.set_repetition_penalty(1.5F);
    settings.set_presence_penalty(0.25F);
    settings.set_frequency_penalty(-0.5F);
    settings.set_choice(3);
    settings.add_logit_bias()->set_token_id(9);
    settings.mutable_logit_bias(0)->set_bias(-4);
    const SamplingParams params = to_params(settings);
    EXPECT_EQ(params.repetition_penalty, 1.5F);
    EXPECT_EQ(params.presence_penalty, 0.25F);
    EXPECT_EQ(params.frequency_penalty, -0.5F);
    EXPECT_EQ(params.choice, 3U);
    ASSERT_EQ(params.logit_bias.size(), 1U);
    EXPECT_EQ(params.logit_bias[0].id, 9U);
    EXPECT_EQ(params.logit_bias[0].bias, -4.0F);
}

}  // namespace
}  // namespace afd::model
