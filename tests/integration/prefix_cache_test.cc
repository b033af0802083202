// SPDX-License-Identifier: Apache-2.0
//
// Shared KV blocks on the real system.
//
// Oracle of every comparison: the same requests on a colocated daemon without the cache, token ids
// and the bits of every logprob.

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>

#include <random>

#include "tests/integration/background_generation.h"
#include "tests/integration/workload.h"

namespace afd::test {
namespace {

constexpr uint32_t kPrefixTokens = 300;
constexpr uint32_t kCachedTokens = 256;  // The full blocks of it.

client::Generate prompt_behind_prefix(uint32_t prefix_tokens, uint32_t seed, uint32_t num_own) {
    client::Generate request;
    for (uint32_t i = 0; i < prefix_tokens; ++i) {
        request.mutable_token_ids()->add_ids(3 + i * 7 % 200);
    }
    std::mt19937 random(seed);
    for (uint32_t i = 0; i < num_own; ++i) {
        request.mutable_token_ids()->add_ids(3 + static_cast<uint32_t>(random()) % 200);
    }
    request.set_max_tokens(20);
    request.set_ignore_eos(true);
    request.set_return_token_ids(true);
    request.set_return_logprobs(true);
    if (seed % 2 == 1) {
        request.mutable_sampling()->set_temperature(0.8F);
        request.mutable_sampling()->set_repetition_penalty(1.2F);
        request.mutable_sampling()->set_seed(seed);
    }
    return request;
}

// With a common beginning: own parts of 1 to 150 tokens, one prompt twice, one that reports its
// prompt's logprobs.
std::vector<client::Generate> requests_with_prefix() {
    std::vector<client::Generate> requests;
    for (uint32_t seed = 0; seed < 10; ++seed) {
        requests.push_back(prompt_behind_prefix(kPrefixTokens, seed, 1 + seed * 16));
    }
    requests.push_back(requests[7]);
    requests.push_back(requests[4]);
    requests.back().set_prompt_logprobs(true);
    return requests;
}

const std::vector<Reply>& replies_without_cache() {
    static const std::vector<Reply> replies = [] {
        Instance instance({"--topology", "colocated", "--prefix-cache", "false"});
        instance.wait_ready();
        return run_one_after_another(instance, requests_with_prefix());
    }();
    return replies;
}

uint32_t num_cached(const Instance& instance, const client::Generate& request) {
    auto generation = instance.connect().generate(request, nullptr, nullptr, kPatience);
    EXPECT_TRUE(generation.ok()) << generation.error().message;
    return generation.ok() ? generation.value().finished.num_cached_tokens() : 0;
}

class PrefixCacheEndToEnd : public testing::TestWithParam<std::vector<std::string>> {};

TEST_P(PrefixCacheEndToEnd, HasTheSameBitsAsWithout) {
    Instance instance(GetParam());
    instance.wait_ready();
    const auto requests = requests_with_prefix();
    expect_same_bits(replies_without_cache(), run_all_at_once(instance, requests), "at once");
    expect_same_bits(
        replies_without_cache(), run_one_after_another(instance, requests), "one after another");
    expect_same_bits(replies_without_cache(), run_all_at_once(instance, requests), "again");
    EXPECT_EQ(num_cached(instance, requests.back()), 0U) << "it reports every logprob";
    EXPECT_EQ(instance.stop(), 0);
}

INSTANTIATE_TEST_SUITE_P(
    Settings,
    PrefixCacheEndToEnd,
    testing::Values(
        std::vector<std::string>{"--topology", "colocated", "--micro-batch-size", "256"},
        std::vector<std::string>{
            "--topology", "colocated", "--micro-batch-size", "5", "--micro-batches", "3"},
        std::vector<std::string>{"--attention-workers",
                                 "1",
                                 "--ffn-workers",
                                 "2",
                                 "--micro-batches",
                                 "2",
                                 "--micro-batch-size",
                                 "48"},
        std::vector<std::string>{"--attention-workers",
                                 "2",
                                 "--ffn-workers",
                                 "1",
                                 "--micro-batch-size",
                                 "64",
                                 "--router",
                                 "ffn"},
        std::vector<std::string>{"--attention-workers",
                                 "1",
                                 "--ffn-workers",
                                 "2",
                                 "--dispatch",
                                 "two_phase",
                                 "--prefill-tokens-max",
                                 "100"},
        // Little room: what is kept is thrown out again and again.
        std::vector<std::string>{"--topology", "colocated", "--kv-tokens", "1024"}));

// Of requests that come at once each waits for what another computes, instead of computing it, too.
TEST(PrefixCacheWork, FallsToTheNewTokens) {
    Instance instance({"--attention-workers", "1", "--ffn-workers", "1", "--kv-tokens", "65536"});
    instance.wait_ready();
    client::Connection connection = instance.open_connection();
    constexpr uint32_t kNumRequests = 64;
    for (uint32_t i = 0; i < kNumRequests; ++i) {
        client::Request request;
        request.set_request_id(i + 1);
        *request.mutable_generate() = prompt_behind_prefix(512, i, 8);
        ASSERT_TRUE(connection.send(request).ok());
    }
    uint64_t num_cached_tokens = 0;
    uint32_t num_finished = 0;
    std::vector<client::Response> responses;
    const auto deadline = client::Clock::now() + 2 * kPatience;
    while (num_finished < kNumRequests && client::Clock::now() < deadline) {
        pollfd ready{connection.fd(), connection.events(), 0};
        poll(&ready, 1, 100);
        static_cast<void>(connection.flush());
        responses.clear();
        ASSERT_TRUE(connection.receive(responses).ok());
        for (const client::Response& response : responses) {
            ASSERT_FALSE(response.has_error()) << response.error().message();
            if (!response.has_finished()) continue;
            ++num_finished;
            num_cached_tokens += response.finished().num_cached_tokens();
        }
    }
    EXPECT_EQ(num_finished, kNumRequests);
    EXPECT_EQ(num_cached_tokens, uint64_t{kNumRequests - 1} * 512);
    EXPECT_EQ(num_cached(instance, prompt_behind_prefix(512, 99, 8)), 512U);
    const client::Worker worker = instance.status().workers(0);
    EXPECT_EQ(worker.num_prefix_queries(), uint64_t{kNumRequests + 1} * 520);
    EXPECT_EQ(worker.num_prefix_hits(), uint64_t{kNumRequests} * 512);
    EXPECT_EQ(instance.stop(), 0);
}

// Goal: conversations find what they computed, though each of their requests may fill the context
// and there is room for one context only. Method: two take turns; each turn is cut short by its
// client. Oracle: a first turn finds nothing, and each later one all full blocks of the prompt
// before it.
TEST(PrefixCacheWork, ConversationsInTurnFindTheirOwn) {
    for (const char* reserve : {"grow", "whole"}) {
        // Slow kernels: until its client's word arrives, a turn goes on and takes room.
        Instance instance({"--topology",
                           "colocated",
                           "--numeric-class",
                           "portable",
                           "--kv-tokens",
                           "1024",
                           "--kv-reserve",
                           reserve});
        instance.wait_ready();
        for (uint32_t turn = 0; turn < 3; ++turn) {
            for (uint32_t who = 0; who < 2; ++who) {
                client::Generate request = prompt_behind_prefix(kPrefixTokens, 2, 10 * turn);
                request.mutable_token_ids()->set_ids(0, 10 + who);
                request.clear_max_tokens();
                uint32_t num_tokens = 0;
                const auto cut =
                    instance.connect().generate(request, [&](const client::Chunk& chunk) {
                        num_tokens += chunk.num_tokens();
                        return num_tokens < 20;
                    });
                ASSERT_TRUE(cut.ok()) << cut.error().message;
                EXPECT_EQ(cut.value().finished.num_cached_tokens(), turn == 0 ? 0 : kCachedTokens)
                    << reserve << ", turn " << turn << " of " << who;
            }
        }
        EXPECT_EQ(instance.stop(), 0);
    }
}

TEST(PrefixCacheWork, OffNothingIsShared) {
    Instance instance({"--topology", "colocated", "--prefix-cache", "false"});
    instance.wait_ready();
    const client::Generate request = prompt_behind_prefix(kPrefixTokens, 1, 5);
    EXPECT_EQ(num_cached(instance, request), 0U);
    EXPECT_EQ(num_cached(instance, request), 0U);
}

// The successor of a killed worker has an empty cache, and replays into it.
TEST(PrefixCacheWork, KilledAttentionWorkerChangesNoBit) {
    Instance instance(patient_pair());
    instance.wait_ready();
    client::Generate request = prompt_behind_prefix(kPrefixTokens, 3, 40);
    request.set_max_tokens(400);
    EXPECT_EQ(num_cached(instance, prompt_behind_prefix(kPrefixTokens, 1, 5)), 0U);
    auto undisturbed = instance.connect().generate(request, nullptr, nullptr, kPatience);
    ASSERT_TRUE(undisturbed.ok()) << undisturbed.error().message;
    EXPECT_EQ(undisturbed.value().finished.num_cached_tokens(), kCachedTokens);
    BackgroundGeneration generation(instance, request);
    const pid_t attention = instance.worker_pids("attention")[0];
    generation.disturb_amid(60, [&] { send_signal(attention, SIGKILL); });
    expect_same_generation(undisturbed.value(), generation.finish());
    EXPECT_EQ(instance.stop(), 0);
}

}  // namespace
}  // namespace afd::test
