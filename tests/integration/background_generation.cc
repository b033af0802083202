// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/background_generation.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <bit>

namespace afd::test {
namespace {

std::vector<uint32_t> bits_of(const std::vector<float>& values) {
    std::vector<uint32_t> bits;
    for (const float value : values) bits.push_back(std::bit_cast<uint32_t>(value));
    return bits;
}

}  // namespace

void expect_same_generation(const client::Generation& expected,
                            const Result<client::Generation>& found) {
    ASSERT_TRUE(found.ok()) << found.error().message;
    EXPECT_EQ(found.value().token_ids, expected.token_ids);
    EXPECT_EQ(bits_of(found.value().logprobs), bits_of(expected.logprobs));
    EXPECT_EQ(bits_of(found.value().prompt_logprobs), bits_of(expected.prompt_logprobs));
}

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
    stop_amid(all, count, std::vector<pid_t>{worker});
}

void BackgroundGeneration::stop_amid(const std::vector<BackgroundGeneration*>& all,
                                     uint32_t count,
                                     const std::vector<pid_t>& workers) {
    for (int attempt = 0; attempt < kAttemptsToBeInTime; ++attempt) {
        for (const BackgroundGeneration* one : all) one->wait_for_tokens(count);
        for (const pid_t worker : workers) send_signal(worker, SIGSTOP);
        if (run_on(all.front()->instance_, static_cast<uint32_t>(all.size()))) return;
        for (const pid_t worker : workers) send_signal(worker, SIGCONT);
        if (!begin_anew(all)) return;
    }
    ADD_FAILURE() << "a request was always over before it was stopped";
}

void BackgroundGeneration::disturb_amid(uint32_t count, const std::function<void()>& disturb) {
    disturb_amid({this}, count, disturb);
}

void BackgroundGeneration::disturb_amid(const std::vector<BackgroundGeneration*>& all,
                                        uint32_t count,
                                        const std::function<void()>& disturb) {
    const Instance& instance = all.front()->instance_;
    // FFN workers first: what they have not answered then stands there.
    std::vector<pid_t> workers = instance.worker_pids("ffn");
    for (const pid_t attention : instance.worker_pids("attention")) workers.push_back(attention);
    stop_amid(all, count, workers);
    disturb();
    for (const pid_t worker : workers) send_signal(worker, SIGCONT);
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
                              const std::vector<std::function<void()>>& disturbances) {
    constexpr uint32_t kNumTokens = 900;
    const auto expected = instance.connect().generate(long_request(kNumTokens));
    ASSERT_TRUE(expected.ok()) << expected.error().message;
    for (const auto& disturb : disturbances) {
        BackgroundGeneration generation(instance, long_request(kNumTokens));
        generation.wait_for_tokens(20);
        for (int attempt = 1; generation.num_tokens() == kNumTokens; ++attempt) {
            ASSERT_LT(attempt, kAttemptsToBeInTime) << "the request was always over before";
            ASSERT_TRUE(BackgroundGeneration::begin_anew({&generation}));
            generation.wait_for_tokens(20);
        }
        disturb();
        expect_same_generation(expected.value(), generation.finish());
    }
}

void expect_same_bits_through_kills(const Instance& instance,
                                    const client::Generate& request,
                                    const std::vector<WorkerPlace>& killed) {
    const auto expected = instance.connect().generate(request);
    ASSERT_TRUE(expected.ok()) << expected.error().message;
    for (const WorkerPlace& place : killed) {
        SCOPED_TRACE(place.role + " " + std::to_string(place.index) + " is killed");
        std::vector<std::unique_ptr<BackgroundGeneration>> generations;
        std::vector<BackgroundGeneration*> all;
        for (size_t i = 0; i < instance.worker_pids("attention").size(); ++i) {
            generations.push_back(std::make_unique<BackgroundGeneration>(instance, request));
            all.push_back(generations.back().get());
        }
        const pid_t pid = instance.worker_pids(place.role).at(place.index);
        BackgroundGeneration::disturb_amid(all, 20, [&] { send_signal(pid, SIGKILL); });
        instance.wait_for_successor(place.role, place.index, pid);
        for (BackgroundGeneration* generation : all) {
            expect_same_generation(expected.value(), generation->finish());
        }
    }
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
