// SPDX-License-Identifier: Apache-2.0
//
// Penalties, ends and top logprobs on the real system.

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <bit>

#include "tests/integration/background_generation.h"
#include "tests/integration/instance.h"

namespace afd::test {
namespace {

const std::vector<std::string> kOneAndTwo = {
    "--attention-workers", "1", "--ffn-workers", "2", "--stop-timeout-ms", "0"};

// Nearly everything that looks at the tokens before.
client::Generate penalised_request(uint32_t num_tokens) {
    client::Generate request = long_request(num_tokens);
    SamplingSettings& sampling = *request.mutable_sampling();
    sampling.set_temperature(0.7F);
    sampling.set_seed(99);
    sampling.set_repetition_penalty(1.15F);
    sampling.set_presence_penalty(0.4F);
    sampling.set_frequency_penalty(0.2F);
    sampling.add_logit_bias()->set_token_id(77);
    sampling.mutable_logit_bias(0)->set_bias(1.5F);
    request.set_top_logprobs(3);
    return request;
}

client::Generation run(const Instance& instance, const client::Generate& request) {
    auto generation = instance.connect().generate(request, nullptr, nullptr, kPatience);
    EXPECT_TRUE(generation.ok()) << generation.error().message;
    return generation.ok() ? std::move(generation).value() : client::Generation();
}

std::vector<uint32_t> bits_of(const client::Generation& generation) {
    std::vector<uint32_t> bits = generation.token_ids;
    for (const float value : generation.logprobs) bits.push_back(std::bit_cast<uint32_t>(value));
    for (const client::TopLogprobs& top : generation.top_logprobs) {
        bits.insert(bits.end(), top.token_ids().begin(), top.token_ids().end());
        for (const float value : top.logprobs()) bits.push_back(std::bit_cast<uint32_t>(value));
    }
    return bits;
}

// Goal: counts of the output survive the worker that made them. Method: two kills of the only
// attention worker in mid-stream. Oracle: an undisturbed run, to the bit; without penalties the
// tokens are others, so that the counts matter.
TEST(SamplingEndToEnd, PenaltiesHaveTheSameBitsAfterKillsOfTheAttentionWorker) {
    Instance instance(kOneAndTwo);
    instance.wait_ready();
    const client::Generation undisturbed = run(instance, penalised_request(500));
    ASSERT_EQ(undisturbed.top_logprobs.size(), 500U);
    client::Generate plain = penalised_request(500);
    plain.mutable_sampling()->set_repetition_penalty(1);
    plain.mutable_sampling()->set_presence_penalty(0);
    plain.mutable_sampling()->set_frequency_penalty(0);
    EXPECT_NE(run(instance, plain).token_ids, undisturbed.token_ids);

    BackgroundGeneration generation(instance, penalised_request(500));
    for (const uint32_t num_tokens : {40U, 200U}) {
        generation.stop_amid(num_tokens, instance.worker_pids("attention")[0]);
        instance.replace_worker("attention", 0, SIGKILL);
    }
    auto found = generation.finish();
    ASSERT_TRUE(found.ok()) << found.error().message;
    EXPECT_EQ(bits_of(found.value()), bits_of(undisturbed));
    EXPECT_EQ(instance.stop(), 0);
}

TEST(SamplingEndToEnd, ChoicesOfOneSeedDifferAndRepeat) {
    Instance instance({"--topology", "colocated"});
    instance.wait_ready();
    client::Generate request = penalised_request(40);
    const client::Generation first = run(instance, request);
    request.mutable_sampling()->set_choice(1);
    const client::Generation second = run(instance, request);
    EXPECT_NE(first.token_ids, second.token_ids);
    EXPECT_EQ(bits_of(second), bits_of(run(instance, request)));
}

// Goal: the cut is where the whole text says, and the KV room is free afterwards. Oracle: the text
// of the same request without stop strings, searched by std::string::find.
TEST(SamplingEndToEnd, StopStringsCutTheTextAndFreeTheRoom) {
    Instance instance(kOneAndTwo);
    instance.wait_ready();
    client::Generate request;
    request.set_text("Once upon a time");
    request.set_max_tokens(200);
    request.set_ignore_eos(true);
    const client::Generation whole = run(instance, request);
    ASSERT_GT(whole.text.size(), 100U);
    // Bytes of the middle of the text; the start of a character, should it be another language.
    const std::string stop = whole.text.substr(60, 9);
    request.add_stop("this text does not occur");
    request.add_stop(stop);
    const client::Generation cut = run(instance, request);
    EXPECT_EQ(cut.text, whole.text.substr(0, whole.text.find(stop)));
    EXPECT_EQ(cut.finished.reason(), client::STOP);
    EXPECT_EQ(cut.finished.matched_stop(), stop);
    EXPECT_LT(cut.finished.num_output_tokens(), 200U);
    request.set_include_stop_str_in_output(true);
    EXPECT_EQ(run(instance, request).text,
              whole.text.substr(0, whole.text.find(stop) + stop.size()));
    EXPECT_EQ(instance.status().num_running(), 0U);
    EXPECT_EQ(instance.status().workers(0).kv_tokens_used(), 0U);
    EXPECT_EQ(instance.stop(), 0);
}

TEST(SamplingEndToEnd, StopTokensEndAndMinTokensHoldThemBack) {
    Instance instance({"--topology", "colocated"});
    instance.wait_ready();
    client::Generate request = long_request(60);
    const client::Generation whole = run(instance, request);
    const uint32_t stop = whole.token_ids[20];
    const auto first = std::find(whole.token_ids.begin(), whole.token_ids.end(), stop);
    request.add_stop_token_ids(stop);
    const client::Generation cut = run(instance, request);
    EXPECT_EQ(cut.token_ids, std::vector<uint32_t>(whole.token_ids.begin(), first + 1));
    EXPECT_EQ(cut.finished.matched_stop_token_id(), stop);
    request.set_min_tokens(45);
    const client::Generation held = run(instance, request);
    EXPECT_GE(held.token_ids.size(), 45U);
    EXPECT_EQ(std::count(held.token_ids.begin(), held.token_ids.begin() + 44, stop), 0);
}

TEST(SamplingEndToEnd, GreedyTokenIsTheFirstOfTheTop) {
    Instance instance({"--topology", "colocated"});
    instance.wait_ready();
    client::Generate request = long_request(30);
    request.set_top_logprobs(20);
    const client::Generation generation = run(instance, request);
    ASSERT_EQ(generation.top_logprobs.size(), 30U);
    for (size_t i = 0; i < 30; ++i) {
        const client::TopLogprobs& top = generation.top_logprobs[i];
        ASSERT_EQ(top.token_ids_size(), 20);
        EXPECT_EQ(top.token_ids(0), generation.token_ids[i]);
        EXPECT_EQ(top.logprobs(0), generation.logprobs[i]);
        EXPECT_TRUE(std::is_sorted(top.logprobs().rbegin(), top.logprobs().rend()));
    }
}

}  // namespace
}  // namespace afd::test
