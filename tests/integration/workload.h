// SPDX-License-Identifier: Apache-2.0
#pragma once

// Workload: fixed sets of requests and ways to send them, for tests that compare results.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "clients/afd_client.h"
#include "tests/integration/instance.h"

namespace afd::test {

// What a request came to, to the last bit.
struct Reply {
    std::vector<uint32_t> token_ids;
    std::vector<uint32_t> logprob_bits;
    std::vector<uint32_t> prompt_logprob_bits;
    std::string error;  // Empty: finished.

    friend bool operator==(const Reply&, const Reply&) = default;
};

// Adds what a response says to the reply that it belongs to.
void note(const client::Response& response, Reply& reply);
// Whether it is the last response to its request.
bool is_end(const client::Response& response);

// `count` requests of token ids below `vocab_size`: prompts of 1 to 600 tokens, 4 to 40 new ones,
// every second one sampled with a seed of its own, one in four with penalties, one in eight with
// prompt logprobs.
// The same for the same arguments.
std::vector<client::Generate> mixed_requests(size_t count, uint32_t vocab_size, uint32_t seed);

std::vector<Reply> run_one_after_another(const Instance& instance,
                                         const std::vector<client::Generate>& requests);
std::vector<Reply> run_all_at_once(const Instance& instance,
                                   const std::vector<client::Generate>& requests);

// The two halves of run_all_at_once(): sends them on one connection; receives all of their
// responses, each of which is shown to `see`, with its request's place, in the order of afdd.
client::Connection send_all(const Instance& instance,
                            const std::vector<client::Generate>& requests);
std::vector<Reply> receive_all(
    const Instance& instance,
    client::Connection& connection,
    size_t count,
    const std::function<void(size_t, const client::Response&)>& see = nullptr);

// Fails the test where `found` differs from `expected`, naming the first difference.
void expect_same_bits(const std::vector<Reply>& expected,
                      const std::vector<Reply>& found,
                      const std::string& what);

}  // namespace afd::test
