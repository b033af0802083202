// SPDX-License-Identifier: Apache-2.0
#include "tests/faults/steady_load.h"

#include <gtest/gtest.h>

#include <bit>
#include <chrono>
#include <utility>

namespace afd::test {

SteadyLoad::SteadyLoad(const Instance& instance,
                       std::vector<client::Generate> requests,
                       std::vector<Reply> expected,
                       size_t num_clients)
    : instance_(instance), requests_(std::move(requests)), expected_(std::move(expected)) {
    for (size_t i = 0; i < num_clients; ++i) threads_.emplace_back([this, i] { run(i); });
}

SteadyLoad::~SteadyLoad() {
    is_ending_ = true;
    for (std::thread& thread : threads_) {
        if (thread.joinable()) thread.join();
    }
}

void SteadyLoad::run(size_t index) {
    client::Client client = instance_.connect();
    // Once at least, however late this thread is.
    for (size_t i = index; i == index || !is_ending_; ++i) {
        const size_t number = i % requests_.size();
        // Longer than anybody waits for replies.
        const auto found = client.generate(requests_[number], nullptr, nullptr, 3 * kPatience);
        std::string problem;
        if (!found.ok()) {
            problem = found.error().message;
        } else if (found.value().token_ids != expected_[number].token_ids) {
            problem = "other tokens";
        } else if (found.value().logprobs.size() != expected_[number].logprob_bits.size()) {
            problem = std::to_string(found.value().logprobs.size()) + " log probabilities";
        } else {
            for (size_t k = 0; k < found.value().logprobs.size() && problem.empty(); ++k) {
                const auto bits = std::bit_cast<uint32_t>(found.value().logprobs[k]);
                if (bits != expected_[number].logprob_bits[k]) {
                    problem = "another log probability of token " + std::to_string(k);
                }
            }
        }
        ++num_replies_;
        if (problem.empty()) continue;
        const std::lock_guard lock(mutex_);
        problems_.push_back("request " + std::to_string(number) + ": " + problem);
        return;
    }
}

std::vector<std::string> SteadyLoad::problems() const {
    const std::lock_guard lock(mutex_);
    return problems_;
}

void SteadyLoad::wait_for_replies(uint64_t count, std::chrono::milliseconds patience) const {
    const uint64_t wanted = num_replies_ + count;
    const auto deadline = std::chrono::steady_clock::now() + patience;
    while (num_replies_ < wanted) {
        const std::vector<std::string> found = problems();
        ASSERT_TRUE(found.empty()) << "clients that ended: " << found.size() << " of "
                                   << threads_.size() << ", the first at " << found.front();
        ASSERT_LT(std::chrono::steady_clock::now(), deadline)
            << num_replies_ << " of " << wanted << " replies came\n"
            << instance_.describe();
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
}

uint64_t SteadyLoad::finish() {
    is_ending_ = true;
    for (std::thread& thread : threads_) {
        if (thread.joinable()) thread.join();
    }
    for (const std::string& problem : problems()) ADD_FAILURE() << problem;
    return num_replies_;
}

}  // namespace afd::test
