// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/workload.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <bit>
#include <random>
#include <set>

namespace afd::test {
namespace {

void append_bits(const google::protobuf::RepeatedField<float>& values,
                 std::vector<uint32_t>& bits) {
    for (const float value : values) bits.push_back(std::bit_cast<uint32_t>(value));
}

template <typename T>
std::string first_difference(const std::vector<T>& expected, const std::vector<T>& found) {
    for (size_t i = 0; i < std::min(expected.size(), found.size()); ++i) {
        if (expected[i] != found[i]) {
            return "at " + std::to_string(i) + ": " + std::to_string(expected[i]) + " became " +
                   std::to_string(found[i]);
        }
    }
    return "length " + std::to_string(expected.size()) + " became " + std::to_string(found.size());
}

}  // namespace

void note(const client::Response& response, Reply& reply) {
    if (response.has_chunk()) {
        const client::Chunk& chunk = response.chunk();
        reply.token_ids.insert(
            reply.token_ids.end(), chunk.token_ids().begin(), chunk.token_ids().end());
        append_bits(chunk.logprobs(), reply.logprob_bits);
        append_bits(chunk.prompt_logprobs(), reply.prompt_logprob_bits);
    }
    if (response.has_error()) reply.error = response.error().message();
}

bool is_end(const client::Response& response) {
    return response.has_finished() || response.has_error();
}

std::vector<client::Generate> mixed_requests(size_t count, uint32_t vocab_size, uint32_t seed) {
    std::mt19937 random(seed);
    constexpr uint32_t kLengths[] = {1, 2, 7, 33, 64, 65, 130, 255, 257, 600};
    std::vector<client::Generate> requests(count);
    for (size_t i = 0; i < count; ++i) {
        client::Generate& request = requests[i];
        const uint32_t length =
            i < std::size(kLengths) ? kLengths[i] : 1 + static_cast<uint32_t>(random()) % 300;
        for (uint32_t t = 0; t < length; ++t) {
            request.mutable_token_ids()->add_ids(static_cast<uint32_t>(random()) % vocab_size);
        }
        request.set_max_tokens(4 + static_cast<uint32_t>(random()) % 37);
        if (i % 2 == 1) {
            request.mutable_sampling()->set_temperature(0.8F);
            request.mutable_sampling()->set_top_k(i % 4 == 1 ? 40 : 0);
            request.mutable_sampling()->set_top_p(0.95F);
            request.mutable_sampling()->set_min_p(i % 8 == 5 ? 0.05F : 0.0F);
            request.mutable_sampling()->set_seed(1000 + i);
        }
        if (i % 4 == 3) {
            request.mutable_sampling()->set_repetition_penalty(1.2F);
            request.mutable_sampling()->set_presence_penalty(0.5F);
            request.mutable_sampling()->set_frequency_penalty(0.25F);
            request.set_min_tokens(4);
        }
        request.set_ignore_eos(i % 3 == 0);
        request.set_return_token_ids(true);
        request.set_return_logprobs(true);
        request.set_prompt_logprobs(i % 8 == 3);
    }
    return requests;
}

std::vector<Reply> run_one_after_another(const Instance& instance,
                                         const std::vector<client::Generate>& requests) {
    std::vector<Reply> replies;
    client::Client client = instance.connect();
    for (const client::Generate& request : requests) {
        const auto generation = client.generate(request, nullptr, nullptr, kPatience);
        Reply& reply = replies.emplace_back();
        if (!generation.ok()) {
            reply.error = generation.error().message;
            continue;
        }
        reply.token_ids = generation.value().token_ids;
        for (const float value : generation.value().logprobs) {
            reply.logprob_bits.push_back(std::bit_cast<uint32_t>(value));
        }
        for (const float value : generation.value().prompt_logprobs) {
            reply.prompt_logprob_bits.push_back(std::bit_cast<uint32_t>(value));
        }
    }
    return replies;
}

std::vector<Reply> run_all_at_once(const Instance& instance,
                                   const std::vector<client::Generate>& requests) {
    client::Connection connection = send_all(instance, requests);
    return receive_all(instance, connection, requests.size());
}

client::Connection send_all(const Instance& instance,
                            const std::vector<client::Generate>& requests) {
    client::Connection connection = instance.open_connection();
    for (size_t i = 0; i < requests.size(); ++i) {
        client::Request request;
        request.set_request_id(i + 1);
        *request.mutable_generate() = requests[i];
        EXPECT_TRUE(connection.send(request).ok());
    }
    return connection;
}

std::vector<Reply> receive_all(const Instance& instance,
                               client::Connection& connection,
                               size_t count,
                               const std::function<void(size_t, const client::Response&)>& see) {
    std::vector<Reply> replies(count);
    std::set<size_t> open;
    for (size_t i = 0; i < count; ++i) open.insert(i);
    const auto deadline = client::Clock::now() + 2 * kPatience;
    std::vector<client::Response> responses;
    while (!open.empty() && client::Clock::now() < deadline) {
        pollfd ready{connection.fd(), connection.events(), 0};
        poll(&ready, 1, 100);
        static_cast<void>(connection.flush());
        responses.clear();
        const auto received = connection.receive(responses);
        for (const client::Response& response : responses) {
            const size_t index = response.request_id() - 1;
            if (!open.contains(index)) {
                ADD_FAILURE() << "an answer behind the end of request " << response.request_id();
                continue;
            }
            note(response, replies[index]);
            if (see) see(index, response);
            if (is_end(response)) open.erase(index);
        }
        if (!received.ok()) {
            ADD_FAILURE() << received.error().message << "\n" << instance.log();
            break;
        }
    }
    EXPECT_TRUE(open.empty()) << open.size() << " requests without an end\n" << instance.log();
    return replies;
}

void expect_same_bits(const std::vector<Reply>& expected,
                      const std::vector<Reply>& found,
                      const std::string& what) {
    ASSERT_EQ(expected.size(), found.size()) << what;
    for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_EQ(found[i].error, "") << what << ", request " << i;
        if (expected[i] == found[i]) continue;
        ADD_FAILURE() << what << ", request " << i << ": token ids "
                      << first_difference(expected[i].token_ids, found[i].token_ids)
                      << "; logprob bits "
                      << first_difference(expected[i].logprob_bits, found[i].logprob_bits)
                      << "; prompt logprob bits "
                      << first_difference(expected[i].prompt_logprob_bits,
                                          found[i].prompt_logprob_bits);
        return;
    }
}

}  // namespace afd::test
