// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/background_generation.h"

#include <gtest/gtest.h>
#include <signal.h>

namespace afd::test {

struct BackgroundGeneration::State {
    client::Client client;
    std::atomic<uint32_t> num_tokens{0};
    std::atomic<bool> has_ended{false};
    client::Cancellation cancellation = client::Cancellation::create().value();
    Result<client::Generation> result = Error{Code::kInternal, "not finished"};
};

BackgroundGeneration::BackgroundGeneration(const Instance& instance, client::Generate request)
    : instance_(instance), request_(std::move(request)) {
    begin();
}

void BackgroundGeneration::begin() {
    ++num_begun_;
    state_.reset(new State{instance_.connect()});
    thread_ = std::thread([this, state = state_.get()] {
        state->result = state->client.generate(
            request_,
            [state](const client::Chunk& chunk) {
                state->num_tokens.fetch_add(chunk.num_tokens(), std::memory_order_relaxed);
                return true;
            },
            &state->cancellation);
        state->has_ended = true;
    });
}

BackgroundGeneration::~BackgroundGeneration() {
    if (thread_.joinable()) thread_.join();
}

uint32_t BackgroundGeneration::num_tokens() const {
    return state_->num_tokens.load(std::memory_order_relaxed);
}

void BackgroundGeneration::wait_for_tokens(uint32_t count) const {
    const auto deadline = client::Clock::now() + kPatience;
    while (num_tokens() < count) {
        // All of its tokens were counted before.
        const bool has_ended = state_->has_ended;
        ASSERT_TRUE(!has_ended || num_tokens() >= count)
            << "it ended with " << num_tokens() << " tokens instead of " << count;
        ASSERT_LT(client::Clock::now(), deadline) << num_tokens() << " tokens arrived";
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
}

void BackgroundGeneration::stop_amid(uint32_t count, pid_t worker) {
    stop_amid({this}, count, worker);
}

void BackgroundGeneration::stop_amid(const std::vector<BackgroundGeneration*>& all,
                                     uint32_t count,
                                     pid_t worker) {
    for (int attempt = 0; attempt < kAttemptsToBeInTime; ++attempt) {
        for (const BackgroundGeneration* one : all) one->wait_for_tokens(count);
        send_signal(worker, SIGSTOP);
        if (run_on(all.front()->instance_, static_cast<uint32_t>(all.size()))) return;
        send_signal(worker, SIGCONT);
        if (!begin_anew(all)) return;
    }
    ADD_FAILURE() << "a request was always over before the worker stopped";
}

bool BackgroundGeneration::begin_anew(const std::vector<BackgroundGeneration*>& all) {
    for (BackgroundGeneration* one : all) {
        const auto over = one->finish();
        if (!over.ok()) {
            ADD_FAILURE() << over.error().message;
            return false;
        }
    }
    for (BackgroundGeneration* one : all) one->begin();
    return true;
}

void BackgroundGeneration::cancel() {
    state_->cancellation.request();
}

Result<client::Generation> BackgroundGeneration::finish() {
    thread_.join();
    return state_->result;
}

bool run_on(const Instance& instance, uint32_t count) {
    constexpr std::chrono::milliseconds kOnItsWay(150);
    if (instance.status().num_running() < count) return false;
    std::this_thread::sleep_for(kOnItsWay);
    return instance.status().num_running() >= count;
}

void expect_same_bits_through(const Instance& instance,
                              uint32_t num_tokens,
                              const std::function<void()>& disturb) {
    const auto expected = instance.connect().generate(long_request(num_tokens));
    ASSERT_TRUE(expected.ok()) << expected.error().message;
    BackgroundGeneration generation(instance, long_request(num_tokens));
    generation.wait_for_tokens(20);
    disturb();
    const auto found = generation.finish();
    ASSERT_TRUE(found.ok()) << found.error().message;
    EXPECT_EQ(found.value().token_ids, expected.value().token_ids);
    EXPECT_EQ(found.value().logprobs, expected.value().logprobs);
}

client::Generate long_request(uint32_t num_tokens) {
    client::Generate request;
    for (const uint32_t id : {5U, 77U, 123U, 42U}) request.mutable_token_ids()->add_ids(id);
    request.set_max_tokens(num_tokens);
    request.set_ignore_eos(true);
    request.set_return_token_ids(true);
    request.set_return_logprobs(true);
    return request;
}

}  // namespace afd::test
