// SPDX-License-Identifier: Apache-2.0
#include "model/sampling/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "model/sampling/candidate_order.h"
#include "model/sampling/philox.h"
#include "proto/sampling.pb.h"

namespace afd::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Logits with many exact ties, so that the order of candidates matters.
std::vector<float> tied_logits(size_t vocab_size, uint32_t seed) {
    std::mt19937 generator(seed);
    std::uniform_int_distribution<int> level(-24, 8);
    std::vector<float> logits(vocab_size);
    for (float& logit : logits) logit = static_cast<float>(level(generator)) * 0.25f;
    return logits;
}

// The allowed set by a plain full sort: min-p, top-k, then top-p. Ids in candidate order.
std::vector<uint32_t> allowed_by_sorting(const std::vector<float>& logits,
                                         const SamplingParams& params) {
    std::vector<uint32_t> ids(logits.size());
    std::iota(ids.begin(), ids.end(), 0u);
    std::ranges::stable_sort(ids, [&](uint32_t a, uint32_t b) { return logits[a] > logits[b]; });
    const float maximum = *std::ranges::max_element(logits);
    const auto weight = [&](uint32_t id) {
        return std::exp(static_cast<double>(logits[id] - maximum) /
                        static_cast<double>(params.temperature));
    };
    std::erase_if(ids, [&](uint32_t id) { return weight(id) < static_cast<double>(params.min_p); });
    if (params.top_k > 0 && params.top_k < ids.size()) ids.resize(params.top_k);
    double total = 0;
    for (const uint32_t id : ids) total += weight(id);
    double sum = 0;
    size_t kept = 0;
    while (kept < ids.size() && (kept == 0 || sum < static_cast<double>(params.top_p) * total)) {
        sum += weight(ids[kept++]);
    }
    ids.resize(kept);
    return ids;
}

TEST(Philox, GivesThePublishedVectors) {
    // Known answers of philox4x32 with 10 rounds that the authors publish with their library.
    EXPECT_THAT(philox4x32({0, 0, 0, 0}, {0, 0}),
                ElementsAre(0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u));
    constexpr uint32_t kOnes = 0xffffffff;
    EXPECT_THAT(philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
                ElementsAre(0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu));
    EXPECT_THAT(
        philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
        ElementsAre(0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u));
}

TEST(Philox, UniformDependsOnSeedChoiceAndPosition) {
    const double base = philox_uniform(1, 0, 7);
    EXPECT_EQ(base, philox_uniform(1, 0, 7));
    EXPECT_NE(base, philox_uniform(2, 0, 7));
    EXPECT_NE(base, philox_uniform(uint64_t{1} << 32 | 1, 0, 7));
    EXPECT_NE(base, philox_uniform(1, 1, 7));
    EXPECT_NE(base, philox_uniform(1, 0, 8));
    EXPECT_NE(base, philox_uniform(1, 0, uint64_t{1} << 32 | 7));
    double sum = 0;
    for (uint64_t position = 0; position < 10000; ++position) {
        const double value = philox_uniform(42, 0, position);
        ASSERT_GE(value, 0);
        ASSERT_LT(value, 1);
        sum += value;
    }
    // Standard deviation of the mean: 1 / sqrt(12 * 10000) = 0.0029.
    EXPECT_NEAR(sum / 10000, 0.5, 0.015);
}

TEST(Sampler, GreedyTakesTheHighestAndOfEqualOnesTheLowestId) {
    Sampler sampler(5);
    const std::vector<float> logits = {1, 3, 2, 3, -kInfinity};
    const auto token = sampler.sample(logits, {.temperature = 0}, 0);
    ASSERT_TRUE(token.ok());
    EXPECT_EQ(token.value().id, 1u);
}

TEST(Sampler, LogprobIsTheLogSoftmaxOfTheRawLogits) {
    const std::vector<float> logits = tied_logits(1000, 3);
    double sum = 0;
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
    Sampler sampler(logits.size());
    // Temperature and truncation change the choice, never the logprob of what was chosen.
    const SamplingParams params{.temperature = 0.3f, .top_k = 50, .top_p = 0.7f, .seed = 9};
    for (uint64_t position = 0; position < 50; ++position) {
        const auto token = sampler.sample(logits, params, position);
        ASSERT_TRUE(token.ok());
        const double exact = static_cast<double>(logits[token.value().id]) - std::log(sum);
        EXPECT_NEAR(token.value().logprob, exact, 4e-6);
        EXPECT_EQ(token.value().logprob, sampler.logprob(logits, token.value().id).value());
    }
}

TEST(Sampler, TheSamePositionGivesTheSameTokenWhateverCameBefore) {
    const std::vector<float> logits = tied_logits(500, 4);
    const SamplingParams params{.seed = 77};
    Sampler one(logits.size());
    Sampler other(logits.size());
    std::vector<SampledToken> forward;
    for (uint64_t p = 0; p < 64; ++p) forward.push_back(one.sample(logits, params, p).value());
    for (uint64_t p = 64; p-- > 0;) {
        const SampledToken token = other.sample(logits, params, p).value();
        EXPECT_EQ(token.id, forward[p].id);
        EXPECT_EQ(token.logprob, forward[p].logprob);
    }
}

struct Truncation {
    uint32_t top_k;
    float top_p;
    float temperature;
    float min_p = 0;
};

class Truncations : public ::testing::TestWithParam<Truncation> {};

// Goal: the partial selection allows exactly what a full stable sort allows, ties included.
// Method: many draws over logits with many ties. Oracle: allowed_by_sorting(); every drawn token is
// in it, and the draws of most weight are all seen.
TEST_P(Truncations, AllowWhatAFullSortAllows) {
    const auto [top_k, top_p, temperature, min_p] = GetParam();
    for (const uint32_t seed : {1u, 2u, 3u}) {
        const std::vector<float> logits = tied_logits(300, seed);
        const SamplingParams params{.temperature = temperature,
                                    .top_k = top_k,
                                    .top_p = top_p,
                                    .min_p = min_p,
                                    .seed = seed};
        const std::vector<uint32_t> allowed = allowed_by_sorting(logits, params);
        Sampler sampler(logits.size());
        std::vector<int> seen(logits.size(), 0);
        for (uint64_t position = 0; position < 3000; ++position) {
            const uint32_t id = sampler.sample(logits, params, position).value().id;
            ASSERT_NE(std::ranges::find(allowed, id), allowed.end()) << "token " << id;
            ++seen[id];
        }
        if (allowed.size() <= 40) {
            for (const uint32_t id : allowed) EXPECT_GT(seen[id], 0) << "token " << id;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Sampler,
                         Truncations,
                         ::testing::Values(Truncation{0, 1.0f, 1.0f},
                                           Truncation{1, 1.0f, 1.0f},
                                           Truncation{7, 1.0f, 2.0f},
                                           Truncation{300, 1.0f, 1.0f},
                                           Truncation{1000, 0.5f, 1.0f},
                                           Truncation{0, 0.3f, 1.0f},
                                           Truncation{0, 0.9f, 2.0f},
                                           Truncation{0, 0.999f, 2.0f},
                                           Truncation{20, 0.5f, 1.5f},
                                           Truncation{0, 1e-6f, 1.0f},
                                           Truncation{0, 1.0f, 1.0f, 0.3f},
                                           Truncation{0, 1.0f, 2.0f, 0.05f},
                                           Truncation{0, 1.0f, 1.0f, 1.0f},
                                           Truncation{3, 1.0f, 1.0f, 0.3f},
                                           Truncation{1000, 0.5f, 1.0f, 0.1f},
                                           Truncation{20, 0.9f, 1.5f, 0.2f}));

// Goal: min_p is relative to the best token and acts before top_p, which then counts among what is
// left. Method: four tokens of probability 0.4, 0.3, 0.2, 0.1. Oracle: by hand; min_p = 0.6 keeps
// the first two (0.24 is the bound), of which 0.4 / 0.7 is the first one's share.
TEST(Sampler, MinPDropsTokensFarBelowTheBestAndTopPCountsTheRest) {
    const std::vector<float> logits = {
        std::log(0.2f), std::log(0.4f), std::log(0.1f), std::log(0.3f)};
    Sampler sampler(logits.size());
    const auto drawn = [&](float min_p, float top_p) {
        std::vector<uint32_t> ids;
        for (uint64_t position = 0; position < 200; ++position) {
            const SamplingParams params{.top_p = top_p, .min_p = min_p, .seed = 8};
            const uint32_t id = sampler.sample(logits, params, position).value().id;
            if (std::ranges::find(ids, id) == ids.end()) ids.push_back(id);
        }
        std::ranges::sort(ids);
        return ids;
    };
    EXPECT_THAT(drawn(0, 1), ElementsAre(0u, 1u, 2u, 3u));
    EXPECT_THAT(drawn(0.6f, 1), ElementsAre(1u, 3u));
    EXPECT_THAT(drawn(0.6f, 0.5f), ElementsAre(1u));   // 0.4 / 0.7 = 0.57 reaches it alone,
    EXPECT_THAT(drawn(0, 0.5f), ElementsAre(1u, 3u));  // 0.4 of all does not.
    EXPECT_THAT(drawn(1, 1), ElementsAre(1u));
}

TEST(Sampler, MinPThatDropsNothingChangesNoChoice) {
    const std::vector<float> logits = tied_logits(400, 6);
    Sampler sampler(logits.size());
    for (uint64_t position = 0; position < 100; ++position) {
        // The smallest positive weight is far above 1e-30, so nothing is dropped.
        const auto all = sampler.sample(logits, {.seed = 4}, position).value();
        const auto kept = sampler.sample(logits, {.min_p = 1e-30f, .seed = 4}, position).value();
        EXPECT_EQ(all.id, kept.id);
        EXPECT_EQ(all.logprob, kept.logprob);
    }
}

// Goal: a choice among a mask's tokens is the choice where the others are impossible, however many
// there are and wherever the mask ends. Oracle: a row that has -infinity for them, without a mask.
TEST(Sampler, ChoosesAmongAMasksTokensAsIfTheOthersWereImpossible) {
    constexpr uint32_t kTopK = 3;
    for (const size_t vocab_size : {1u, 7u, 64u, 131u, 1000u, 2111u}) {
        const std::vector<float> logits = tied_logits(vocab_size, 4);
        Sampler sampler(vocab_size);
        std::mt19937 random(static_cast<uint32_t>(vocab_size));
        for (const unsigned percent : {0u, 5u, 50u, 95u, 100u}) {
            std::vector<float> row(vocab_size, -kInfinity);
            std::vector<uint64_t> mask((vocab_size + 63) / 64);
            const size_t always = random() % vocab_size;
            size_t count = 0;
            for (size_t id = 0; id < vocab_size; ++id) {
                if (random() % 100 >= percent && id != always) continue;
                row[id] = logits[id];
                mask[id / 64] |= uint64_t{1} << (id % 64);
                ++count;
            }
            for (const SamplingParams& params :
                 {SamplingParams{.temperature = 0},
                  SamplingParams{.temperature = 1},
                  SamplingParams{.temperature = 0.7f, .top_p = 0.9f},
                  SamplingParams{.temperature = 2, .min_p = 0.01f},
                  SamplingParams{.temperature = 2, .top_k = kTopK}}) {
                if (params.top_k > 0 && count <= kTopK) continue;
                for (uint64_t position = 0; position < 20; ++position) {
                    const auto token =
                        sampler.sample(logits, params, position, {.allowed = mask}).value();
                    const auto wanted = sampler.sample(row, params, position).value();
                    ASSERT_EQ(token.id, wanted.id)
                        << count << " of " << vocab_size << " tokens, position " << position;
                    ASSERT_EQ(token.logprob, sampler.logprob(logits, token.id).value());
                }
            }
        }
    }
}

// Goal: a walk stops at the token at which a walk over all tokens in order would.
// Method: random logits, flat, steep and with -infinity and ties, targets over the whole range.
// Oracle: a full sort; the sums agree but for rounding.
TEST(CandidateOrder, StopsWhereAFullSortDoes) {
    std::mt19937 generator(3);
    for (const float spread : {0.0f, 0.01f, 1.0f, 30.0f}) {
        std::vector<Candidate> candidates(5000);
        std::normal_distribution<float> normal(0, 1);
        float maximum = -kInfinity;
        for (uint32_t id = 0; id < candidates.size(); ++id) {
            const float logit = id % 50 == 7 ? -kInfinity : spread * normal(generator);
            candidates[id] = {id % 3 == 0 ? std::round(logit) : logit, id, 0};
            maximum = std::max(maximum, candidates[id].logit);
        }
        for (Candidate& c : candidates) c.weight = std::exp((c.logit - maximum) / 0.7f);
        std::vector<Candidate> sorted = candidates;
        std::sort(sorted.begin(), sorted.end(), comes_before);
        double total = 0;
        for (const Candidate& c : sorted) total += static_cast<double>(c.weight);
        CandidateOrder order(candidates.size());
        order.start(candidates, maximum, 0.7f);
        for (const double share : {0.0, 0.1, 0.37, 0.5, 0.9, 0.95, 0.999, 0.99999}) {
            double sum = 0;
            size_t i = 0;
            while ((sum += static_cast<double>(sorted[i].weight)) < share * total) ++i;
            const auto stop = order.reach(share * total);
            EXPECT_EQ(stop.id, sorted[i].id) << "spread " << spread << " share " << share;
            EXPECT_NEAR(stop.sum, sum, 1e-9 * total);
            EXPECT_EQ(order.exceed(std::nextafter(stop.sum, 0.0)).id, stop.id);
            EXPECT_EQ(order.count(i + 1).id, sorted[i].id);
        }
        EXPECT_EQ(order.exceed(0).id, sorted[0].id);
    }
}

// Goal: no draw takes a token outside of top-k or top-p, whatever rounds. Method: weights of which
// sums in two orders differ, many small ones behind a large one, and the highest point below a sum.
// Oracle: the token at which the count or the sum ended.
TEST(CandidateOrder, NoPointBelowASumIsBeyondIt) {
    constexpr uint32_t kTokens = 2000;
    std::mt19937 generator(9);
    std::uniform_real_distribution<float> distance(21, 23);
    CandidateOrder order(kTokens);
    for (int round = 0; round < 300; ++round) {
        std::vector<Candidate> candidates;
        for (uint32_t id = 0; id < kTokens; ++id) {
            const float logit = id == 7 ? 0 : -distance(generator);
            candidates.push_back({logit, id, std::exp(logit)});
        }
        order.start(candidates, 0, 1);
        std::vector<Candidate> sorted = candidates;
        std::ranges::sort(sorted, comes_before);
        const size_t num_tokens = 1 + generator() % kTokens;
        const CandidateOrder::Stop counted = order.count(num_tokens);
        ASSERT_EQ(counted.id, sorted[num_tokens - 1].id);
        EXPECT_EQ(order.exceed(std::nextafter(counted.sum, 0.0)).id, counted.id) << num_tokens;
        const CandidateOrder::Stop reached = order.reach(1 + 0.5 * (counted.sum - 1));
        EXPECT_EQ(order.exceed(std::nextafter(reached.sum, 0.0)).id, reached.id) << num_tokens;
        EXPECT_EQ(order.reach(1e9).id, sorted.back().id) << "the last where none reaches it";
    }
}

TEST(Sampler, DrawsFollowTheSoftmaxOverTemperature) {
    const std::vector<float> logits = {0, 1, 2, 3};
    Sampler sampler(logits.size());
    for (const float temperature : {0.5f, 1.0f, 2.0f}) {
        constexpr int kDraws = 20000;
        std::vector<int> count(logits.size(), 0);
        for (uint64_t p = 0; p < kDraws; ++p) {
            ++count[sampler.sample(logits, {.temperature = temperature, .seed = 5}, p).value().id];
        }
        double sum = 0;
        for (const float logit : logits) sum += std::exp(static_cast<double>(logit / temperature));
        for (size_t id = 0; id < logits.size(); ++id) {
            const double p = std::exp(static_cast<double>(logits[id] / temperature)) / sum;
            // Five standard deviations of a binomial share.
            EXPECT_NEAR(count[id] / double{kDraws}, p, 5 * std::sqrt(p * (1 - p) / kDraws));
        }
    }
}

TEST(Sampler, ReportsLogitsThatAreNotNumbers) {
    Sampler sampler(3);
    const auto nan = sampler.sample(std::vector<float>{1, NAN, 2}, {}, 0);
    ASSERT_FALSE(nan.ok());
    EXPECT_EQ(nan.error().code, Code::kInternal);
    EXPECT_THAT(nan.error().message, HasSubstr("the logit of token 1 is NaN"));
    const auto infinite = sampler.sample(std::vector<float>{1, 2, kInfinity}, {}, 0);
    ASSERT_FALSE(infinite.ok());
    EXPECT_THAT(infinite.error().message, HasSubstr("the logit of token 2 is infinite"));
    const auto none = sampler.logprob(std::vector<float>(3, -kInfinity), 0);
    ASSERT_FALSE(none.ok());
    EXPECT_THAT(none.error().message, HasSubstr("all logits are -infinity"));
}

// Whichever lane of whichever block it falls into.
TEST(Sampler, NamesATokenWhoseLogitIsNoNumberWhereverItStands) {
    constexpr size_t kVocabSize = 2111;
    Sampler sampler(kVocabSize);
    std::vector<float> logits(kVocabSize, -1);
    for (size_t id = 0; id < kVocabSize; ++id) {
        for (const float bad : {NAN, -NAN, kInfinity}) {
            logits[id] = bad;
            const auto token = sampler.logprob(logits, 0);
            ASSERT_FALSE(token.ok()) << id;
            ASSERT_THAT(token.error().message,
                        HasSubstr("the logit of token " + std::to_string(id) + " is"));
        }
        logits[id] = id % 2 == 0 ? -kInfinity : -1;
    }
}

TEST(Sampler, SettingsOutOfRangeAreNamedWithTheirValue) {
    SamplingSettings settings;
    EXPECT_TRUE(validate(settings, 100).ok());
    settings.set_temperature(-1);
    EXPECT_EQ(validate(settings, 100).error().message,
              "temperature = -1: must be from 0 (greedy) to 2");
    EXPECT_EQ(validate(settings, 100).error().code, Code::kInvalidArgument);
    settings.set_temperature(NAN);
    EXPECT_EQ(validate(settings, 100).error().message,
              "temperature = nan: must be from 0 (greedy) to 2");
    settings.set_temperature(2);
    settings.set_top_p(1.5f);
    EXPECT_EQ(validate(settings, 100).error().message,
              "top_p = 1.5: must be above 0 and at most 1 (or 0: off)");
    settings.set_top_p(0);
    settings.set_min_p(-0.5f);
    EXPECT_EQ(validate(settings, 100).error().message, "min_p = -0.5: must be from 0 (off) to 1");
    settings.set_min_p(NAN);
    EXPECT_EQ(validate(settings, 100).error().message, "min_p = nan: must be from 0 (off) to 1");
    settings.set_min_p(1);
    EXPECT_TRUE(validate(settings, 100).ok());
}

TEST(Sampler, SettingsReachTheParametersEachInItsPlace) {
    SamplingSettings settings;
    EXPECT_EQ(to_params(settings).top_p, 1.0f) << "0 means off";
    EXPECT_EQ(to_params(settings).temperature, 0.0f);
    settings.set_temperature(0.5f);
    settings.set_top_k(3);
    settings.set_top_p(0.25f);
    settings.set_min_p(0.125f);
    settings.set_seed(77);
    const SamplingParams params = to_params(settings);
    EXPECT_EQ(params.temperature, 0.5f);
    EXPECT_EQ(params.top_k, 3u);
    EXPECT_EQ(params.top_p, 0.25f);
    EXPECT_EQ(params.min_p, 0.125f);
    EXPECT_EQ(params.seed, 77u);
}

}  // namespace
}  // namespace afd::model
