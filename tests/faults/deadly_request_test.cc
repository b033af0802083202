// SPDX-License-Identifier: Apache-2.0
//
// A request of which every attention worker dies (R11), with the real programs.
//
// Goal: it ends and says why, those beside it have the bits that they have without it, and the
// instance serves on. Method: whoever embeds a token that only this request has aborts there, each
// time (proto/crash_point.h).
// Oracle: the replies of the undisturbed instance, token ids and log probabilities to the last bit.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include "tests/faults/crash_table.h"
#include "tests/integration/background_generation.h"
#include "tests/integration/instance.h"
#include "tests/integration/joined_process.h"
#include "tests/integration/workload.h"

namespace afd::test {
namespace {

using testing::HasSubstr;

constexpr const char* kPoint = "embed.token_done";
// For as long as the test.
constexpr uint64_t kAlways = 1'000'000;

std::vector<client::Generate> innocent_requests() {
    constexpr uint32_t kLengths[] = {3, 40, 7, 200, 64, 11};
    std::vector<client::Generate> made;
    for (const uint32_t length : kLengths) {
        client::Generate request = long_request(60);
        request.clear_token_ids();
        for (uint32_t i = 0; i < length; ++i) {
            request.mutable_token_ids()->add_ids(3 + (i * 7 + length) % 150);
        }
        request.mutable_sampling()->set_temperature(0.8F);
        request.mutable_sampling()->set_seed(length);
        made.push_back(std::move(request));
    }
    return made;
}

class DeadlyRequest : public testing::Test {
  protected:
    void start(std::vector<std::string> flags) {
        flags.insert(flags.end(), {"--restart-first-ms", "10", "--restart-max-ms", "10"});
        // A core of each death would take longer than the test.
        instance_ = std::make_unique<Instance>(flags, "ulimit -c 0");
    }

    // What the requests come to without the other, and which token none of them has.
    void learn() {
        instance_->wait_ready();
        expected_ = run_all_at_once(*instance_, innocents_);
        token_ = instance_->status().vocab_size() - 1;
        while (has_token()) --token_;
        deadly_ = long_request(8);
        deadly_.mutable_token_ids()->add_ids(token_);
    }

    bool has_token() const {
        const auto is_in = [this](const auto& ids) {
            return std::find(ids.begin(), ids.end(), token_) != ids.end();
        };
        return std::ranges::any_of(expected_,
                                   [&](const Reply& reply) { return is_in(reply.token_ids); }) ||
               std::ranges::any_of(innocents_, [&](const client::Generate& request) {
                   return is_in(request.token_ids().ids());
               });
    }

    void expect_it_ends_alone() {
        constexpr size_t kPlace = 2;
        std::vector<client::Generate> requests = innocents_;
        requests.insert(requests.begin() + kPlace, deadly_);
        table_.arm_for(kPoint, token_, SIGABRT, kAlways);
        std::vector<Reply> found = run_all_at_once(*instance_, requests);
        EXPECT_THAT(found.at(kPlace).error,
                    HasSubstr("in a row while they worked on this request, the last one on nothing "
                              "else (attention worker"));
        EXPECT_THAT(found.at(kPlace).error, HasSubstr("killed by signal 6"));
        EXPECT_THAT(found.at(kPlace).token_ids, testing::IsEmpty());
        found.erase(found.begin() + kPlace);
        expect_same_bits(expected_, found, "beside it");
        EXPECT_GE(table_.deaths(kPoint), 3U);
        EXPECT_LE(table_.deaths(kPoint), 8U) << "as often as a worker may die";
        EXPECT_THAT(instance_->log(), HasSubstr("it runs alone next"));

        instance_->wait_all_workers_ready();
        const auto metrics = instance_->connect().metrics();
        ASSERT_TRUE(metrics.ok()) << metrics.error().message;
        EXPECT_THAT(metrics.value(),
                    testing::ContainsRegex("\nafd_deadly_requests_total[{][^}]*[}] 1\n"));
        EXPECT_EQ(instance_->status().num_failed(), 1U);
        expect_same_bits(expected_, run_all_at_once(*instance_, innocents_), "behind it");
        EXPECT_EQ(instance_->stop(), 0);
    }

    // Before the instance: its programs inherit the environment.
    CrashTable table_;
    std::unique_ptr<Instance> instance_;
    const std::vector<client::Generate> innocents_ = innocent_requests();
    std::vector<Reply> expected_;
    uint32_t token_ = 0;
    client::Generate deadly_;
};

TEST_F(DeadlyRequest, EndsWithOneAttentionWorker) {
    start({"--attention-workers", "1", "--ffn-workers", "1"});
    learn();
    expect_it_ends_alone();
}

TEST_F(DeadlyRequest, EndsWithTwoAttentionWorkers) {
    start({"--attention-workers", "2", "--ffn-workers", "1"});
    learn();
    expect_it_ends_alone();
}

// Kills look like those of somebody else, or of a kernel without memory: they end nobody, however
// many come before the first token.
TEST_F(DeadlyRequest, IsInnocentOfKills) {
    constexpr uint64_t kKills = 10;
    start({"--attention-workers", "1", "--ffn-workers", "1", "--start-attempts", "1000"});
    learn();
    const std::vector<Reply> undisturbed = run_all_at_once(*instance_, {deadly_});
    table_.arm_for(kPoint, token_, SIGKILL, kKills);
    expect_same_bits(undisturbed, run_all_at_once(*instance_, {deadly_}), "through kills");
    EXPECT_EQ(table_.deaths(kPoint), kKills);
    EXPECT_EQ(instance_->status().num_failed(), 0U);
    EXPECT_EQ(instance_->stop(), 0);
}

#ifdef AFD_HAS_UCX
// The leader sees the ends of stand-ins; how the workers end the host tells.
TEST_F(DeadlyRequest, EndsWithAnAttentionWorkerOfAnotherHost) {
    const std::string certificates = make_certificates({"b"});
    std::vector<std::string> flags = leader_flags(certificates);
    flags.insert(flags.end(), {"--attention-hosts", "b"});
    start(flags);
    const JoinedProcess host({.name = "b",
                              .certificates = certificates,
                              .address = join_address(*instance_),
                              .before = {"/bin/sh", "-c", "ulimit -c 0; exec \"$0\" \"$@\""}});
    learn();
    expect_it_ends_alone();
}
#endif

}  // namespace
}  // namespace afd::test
