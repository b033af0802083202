// SPDX-License-Identifier: Apache-2.0
//
// Promise 1, on the real system.
//
// Goal: the tokens and logprobs of a request do not depend on topology, workers, micro-batches,
// chunk size, threads, on which side routes or computes the shared experts, on dispatch by windows
// or in two phases, or on what else is running. Method: the same 32 requests (prompts of 1 to 600
// tokens, greedy and seeded) go to a colocated daemon with one thread, one after another; then to
// every configuration of a list, one after another and all at once. Oracle: token ids and the bits
// of every logprob are equal to the first run's.
//
// The default list covers nearly every pair of values of A, F, M, BS, threads, router and shared
// experts; all combinations run with AFD_SAME_BITS=all in the environment (scripts/same-bits).
// AFD_SAME_BITS_REQUESTS: another number of requests. The first twelve have every length and every
// kind of sampling.

#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/integration/workload.h"

namespace afd::test {
namespace {

struct Setting {
    uint32_t attention_workers = 1;   // A
    uint32_t ffn_workers = 1;         // F; 0: colocated
    uint32_t micro_batches = 1;       // M
    uint32_t micro_batch_size = 256;  // BS
    uint32_t num_threads = 1;         // Of every worker.
    bool ffn_routes = false;          // router = ffn; only with FFN workers.
    bool shared_stage = false;        // shared_experts = attention; only with FFN workers.
    uint32_t two_phase_block = 0;     // Every prompt goes in two phases, in such blocks; 0: auto.

    std::vector<std::string> flags() const {
        std::vector<std::string> flags = {"--topology",
                                          ffn_workers == 0 ? "colocated" : "disaggregated",
                                          "--attention-workers",
                                          std::to_string(attention_workers),
                                          "--micro-batches",
                                          std::to_string(micro_batches),
                                          "--micro-batch-size",
                                          std::to_string(micro_batch_size),
                                          "--attention-threads",
                                          std::to_string(num_threads),
                                          "--ffn-threads",
                                          std::to_string(num_threads),
                                          // The same prompts come again, and are computed again;
                                          // prefix_cache_test.cc compares with and without.
                                          "--prefix-cache",
                                          "false"};
        if (two_phase_block > 0) {
            // A batch of 100 tokens: long prompts need several rounds a layer.
            flags.insert(flags.end(),
                         {"--dispatch",
                          "two_phase",
                          "--prefill-tokens-max",
                          "100",
                          "--two-phase-block",
                          std::to_string(two_phase_block)});
        }
        if (ffn_workers > 0) {
            flags.insert(flags.end(), {"--ffn-workers", std::to_string(ffn_workers)});
            flags.insert(flags.end(), {"--router", ffn_routes ? "ffn" : "attention"});
            flags.insert(flags.end(), {"--shared-experts", shared_stage ? "attention" : "ffn"});
        }
        return flags;
    }

    std::string name() const {
        const std::string workers = ffn_workers == 0 ? "Colocated"
                                                     : "A" + std::to_string(attention_workers) +
                                                           "F" + std::to_string(ffn_workers);
        return workers + "_M" + std::to_string(micro_batches) + "_BS" +
               std::to_string(micro_batch_size) + "_T" + std::to_string(num_threads) +
               (ffn_routes ? "_RouterFfn" : "") + (shared_stage ? "_SharedStage" : "") +
               (two_phase_block > 0 ? "_B" + std::to_string(two_phase_block) : "");
    }
};

// Each pair of values of two columns appears in at least one row, apart from A 3 with BS 1, and F 0
// with A > 1, a router in FFN workers or a shared stage.
std::vector<Setting> pairwise_settings() {
    return {
        {1, 0, 1, 256, 2},
        {1, 0, 2, 4, 1},
        {1, 0, 3, 32, 2},
        {1, 1, 1, 1, 1, true},
        {1, 1, 2, 256, 2, false, true},
        {1, 1, 3, 4, 1, true},
        {2, 1, 1, 4, 2, true, true},
        {2, 1, 2, 32, 1},
        {2, 1, 3, 256, 1},
        {1, 2, 1, 32, 1},
        {1, 2, 2, 1, 2, true, true},
        {1, 2, 3, 256, 1, true},
        {2, 2, 1, 256, 1},
        {2, 2, 2, 4, 2, false, true},
        {2, 2, 3, 1, 1, true},
        {3, 2, 1, 4, 1},
        {3, 2, 2, 256, 1, true},
        {3, 2, 3, 32, 2, false, true},
        {1, 3, 1, 256, 2},
        {1, 3, 2, 32, 1, true, true},
        {1, 3, 3, 4, 1},
        // In two phases: A = 1, 2, 3 and F = 1, 2.
        {1, 1, 1, 256, 1, false, false, 1024},
        {2, 1, 2, 32, 2, false, true, 16},
        {3, 1, 1, 4, 1, false, false, 7},
        {1, 2, 2, 256, 2, false, true, 33},
        {2, 2, 1, 32, 1, false, false, 1},
        {3, 2, 1, 256, 1, false, true, 64},
        {2, 2, 2, 32, 1, true, false, 16},
        {1, 2, 1, 256, 2, true, true, 33},
    };
}

// A way of the rows to the experts: router, shared experts, two phases.
std::vector<Setting> ways(const Setting& setting) {
    if (setting.ffn_workers == 0) return {setting};
    std::vector<Setting> settings;
    for (const bool shared_stage : {false, true}) {
        for (const bool ffn_routes : {false, true}) {
            for (const uint32_t two_phase_block : {0U, 16U}) {
                Setting& way = settings.emplace_back(setting);
                way.ffn_routes = ffn_routes;
                way.shared_stage = shared_stage;
                way.two_phase_block = two_phase_block;
            }
        }
    }
    return settings;
}

std::vector<Setting> all_settings() {
    constexpr std::pair<uint32_t, uint32_t> kWorkers[] = {
        {1, 0}, {1, 1}, {2, 1}, {1, 2}, {2, 2}, {3, 2}, {1, 3}};
    std::vector<Setting> settings;
    for (const auto& [attention_workers, ffn_workers] : kWorkers) {
        for (const uint32_t micro_batches : {1U, 2U, 3U}) {
            for (const uint32_t micro_batch_size : {1U, 4U, 32U, 256U}) {
                for (const uint32_t num_threads : {1U, 2U}) {
                    for (const Setting& way : ways({attention_workers,
                                                    ffn_workers,
                                                    micro_batches,
                                                    micro_batch_size,
                                                    num_threads})) {
                        settings.push_back(way);
                    }
                }
            }
        }
    }
    return settings;
}

std::vector<Setting> chosen_settings() {
    const char* choice = std::getenv("AFD_SAME_BITS");
    return choice != nullptr && std::string(choice) == "all" ? all_settings() : pairwise_settings();
}

const std::vector<client::Generate>& requests() {
    static const std::vector<client::Generate> made = [] {
        Instance instance({"--topology", "colocated"});
        instance.wait_ready();
        const char* count = std::getenv("AFD_SAME_BITS_REQUESTS");
        return mixed_requests(count == nullptr ? 32 : std::strtoul(count, nullptr, 10),
                              instance.status().vocab_size(),
                              20261121);
    }();
    return made;
}

// The first run, that all others are compared with.
const std::vector<Reply>& expected() {
    static const std::vector<Reply> replies = [] {
        Instance instance(Setting{.ffn_workers = 0}.flags());
        instance.wait_ready();
        return run_one_after_another(instance, requests());
    }();
    return replies;
}

class SameBits : public testing::TestWithParam<Setting> {};

TEST_P(SameBits, WhateverTheTopologyAndWhateverElseRuns) {
    size_t num_tokens = 0;
    for (const Reply& reply : expected()) num_tokens += reply.token_ids.size();
    ASSERT_GE(num_tokens, requests().size()) << "the first run produced almost nothing to compare";

    Instance instance(GetParam().flags());
    instance.wait_ready();
    expect_same_bits(expected(), run_one_after_another(instance, requests()), "one after another");
    expect_same_bits(expected(), run_all_at_once(instance, requests()), "all at once");
    uint64_t num_two_phase_rounds = 0;
    const client::Status status = instance.status();
    for (const client::Worker& worker : status.workers()) {
        num_two_phase_rounds += worker.num_two_phase_rounds();
    }
    if (GetParam().two_phase_block > 0) {
        EXPECT_GT(num_two_phase_rounds, 32U) << "the prompts did not go in two phases";
    }
    EXPECT_EQ(instance.stop(), 0);
}

// Goal: whom an FFN worker waits for changes when it computes, never what. Method: three sessions
// at once with each policy; groups of two make one group of two sessions and one of one. Oracle:
// the first run.
TEST(FfnPolicies, AllHaveTheSameBits) {
    for (const std::string policy : {"any", "gather", "all", "groups"}) {
        std::vector<std::string> flags = Setting{3, 2, 2, 32, 1}.flags();
        flags.insert(flags.end(), {"--ffn-policy", policy, "--ffn-sync-group-size", "2"});
        Instance instance(flags);
        instance.wait_ready();
        expect_same_bits(expected(), run_all_at_once(instance, requests()), policy);
        EXPECT_EQ(instance.stop(), 0) << policy;
    }
}

INSTANTIATE_TEST_SUITE_P(Settings,
                         SameBits,
                         testing::ValuesIn(chosen_settings()),
                         [](const auto& setting) { return setting.param.name(); });

}  // namespace
}  // namespace afd::test
