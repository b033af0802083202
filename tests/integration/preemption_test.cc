// SPDX-License-Identifier: Apache-2.0
//
// Requests that grow beyond the KV cache on the real system.
//
// Oracle of every comparison: the same requests one after another, which never lack room; token ids
// and the bits of every logprob.

#include <gtest/gtest.h>
#include <signal.h>

#include <functional>
#include <memory>
#include <optional>
#include <set>

#include "tests/integration/background_generation.h"
#include "tests/integration/workload.h"

namespace afd::test {
namespace {

// The demo model's context, and all that an attention worker holds in these tests.
constexpr uint32_t kDemoContext = 1024;

std::vector<std::string> with_little_room(std::vector<std::string> flags) {
    flags.insert(flags.end(), {"--kv-tokens", std::to_string(kDemoContext)});
    return flags;
}

// Each fits alone, two of them hardly: sampled with seeds, with penalties, prompt logprobs, stop
// strings, JSON and such that can be resumed among them.
std::vector<client::Generate> growing_requests() {
    std::vector<client::Generate> requests = mixed_requests(8, 200, 5);
    for (size_t i = 0; i < requests.size(); ++i) {
        requests[i].set_max_tokens(400);
        requests[i].set_ignore_eos(true);
        if (i % 2 == 0) requests[i].set_resumable_ms(10'000);
    }
    client::Generate listed = requests[1];
    listed.set_text("A list of numbers:");
    listed.set_ignore_eos(false);
    listed.mutable_sampling()->mutable_response_format()->set_json_schema(
        R"({"type": "array", "items": {"type": "integer"}, "minItems": 60, "maxItems": 90})");
    requests.push_back(listed);
    client::Generate stopped = requests[0];
    stopped.set_text("It was a fine morning");
    stopped.add_stop("never to be found in it");
    requests.push_back(stopped);
    return requests;
}

class PreemptionEndToEnd : public testing::TestWithParam<std::vector<std::string>> {};

TEST_P(PreemptionEndToEnd, HasTheSameBitsAsOneAfterAnother) {
    Instance instance(with_little_room(GetParam()));
    instance.wait_ready();
    const auto requests = growing_requests();
    const auto expected = run_one_after_another(instance, requests);
    EXPECT_EQ(instance.status().num_preemptions(), 0U);
    expect_same_bits(expected, run_all_at_once(instance, requests), "at once");
    const client::Status status = instance.status();
    EXPECT_GT(status.num_preemptions(), 0U);
    EXPECT_EQ(status.num_failed(), 0U);
    for (const client::Worker& worker : status.workers()) EXPECT_EQ(worker.kv_tokens_used(), 0U);
    EXPECT_EQ(instance.stop(), 0);
}

INSTANTIATE_TEST_SUITE_P(Settings,
                         PreemptionEndToEnd,
                         testing::Values(std::vector<std::string>{"--topology", "colocated"},
                                         std::vector<std::string>{
                                             "--topology", "colocated", "--prefix-cache", "false"},
                                         std::vector<std::string>{"--attention-workers",
                                                                  "2",
                                                                  "--ffn-workers",
                                                                  "2",
                                                                  "--micro-batches",
                                                                  "3",
                                                                  "--micro-batch-size",
                                                                  "8"},
                                         std::vector<std::string>{"--attention-workers",
                                                                  "1",
                                                                  "--ffn-workers",
                                                                  "1",
                                                                  "--dispatch",
                                                                  "two_phase",
                                                                  "--prefill-tokens-max",
                                                                  "100"}));

// Lets `count` requests begin beside each other: nothing is computed before all have come.
// REQUIRES: a worker may be stopped.
void begin_together(const Instance& instance, uint32_t count, const std::function<void()>& begin) {
    const pid_t worker = instance.worker_pids("attention").at(0);
    send_signal(worker, SIGSTOP);
    begin();
    instance.wait_for("all have come", [&](const client::Status& status) {
        return status.num_running() + status.num_queued() == count;
    });
    send_signal(worker, SIGCONT);
}

// Goal: chats that do not say how long their answers may be run beside each other. Method: one
// connection, so that their tokens come in afdd's order. Oracle: all of them have tokens before any
// of them ends; each gets the answer that it gets alone.
TEST(Preemption, ChatsWithoutMaxTokensRunTogether) {
    Instance instance(with_little_room({"--topology", "colocated", "--stop-timeout-ms", "0"}));
    instance.wait_ready();
    const std::vector<client::Generate> chats(3, long_request(0));
    const std::vector<Reply> alone = run_one_after_another(instance, {chats.front()});
    ASSERT_EQ(alone.front().token_ids.size(), kDemoContext - 4);
    std::optional<client::Connection> connection;
    begin_together(instance, 3, [&] { connection = send_all(instance, chats); });
    std::set<size_t> have_tokens;
    const auto see = [&](size_t chat, const client::Response& response) {
        if (response.has_chunk()) have_tokens.insert(chat);
        if (is_end(response)) {
            EXPECT_EQ(have_tokens.size(), chats.size()) << chat << " has ended";
        }
    };
    const std::vector<Reply> found = receive_all(instance, *connection, chats.size(), see);
    expect_same_bits(std::vector<Reply>(chats.size(), alone.front()), found, "together");
    EXPECT_GT(instance.status().num_preemptions(), 0U);
    EXPECT_EQ(instance.stop(), 0);
}

TEST(Preemption, WholeReservationsRunOneAfterAnother) {
    Instance instance(with_little_room({"--topology", "colocated", "--kv-reserve", "whole"}));
    instance.wait_ready();
    const auto requests = growing_requests();
    const auto expected = run_one_after_another(instance, requests);
    expect_same_bits(expected, run_all_at_once(instance, requests), "at once");
    EXPECT_EQ(instance.status().num_preemptions(), 0U);
    EXPECT_EQ(instance.stop(), 0);
}

TEST(Preemption, ACancelWhileItWaitsFreesAll) {
    Instance instance(with_little_room({"--topology", "colocated", "--stop-timeout-ms", "0"}));
    instance.wait_ready();
    std::vector<std::unique_ptr<BackgroundGeneration>> chats;
    begin_together(instance, 3, [&] {
        for (int i = 0; i < 3; ++i) {
            chats.push_back(std::make_unique<BackgroundGeneration>(instance, long_request(0)));
        }
    });
    instance.wait_for("one has given way",
                      [](const client::Status& status) { return status.num_preemptions() > 0; });
    for (const auto& chat : chats) chat->cancel();
    for (const auto& chat : chats) EXPECT_TRUE(chat->finish().ok());
    instance.wait_for("all room is free", [](const client::Status& status) {
        return status.num_running() + status.num_queued() == 0 &&
               status.workers(0).kv_tokens_used() == 0;
    });
    EXPECT_EQ(instance.stop(), 0);
}

TEST(Preemption, AKilledWorkerAmidItChangesNoBit) {
    Instance instance(with_little_room(patient_pair()));
    instance.wait_ready();
    const client::Generate request = long_request(0);
    const auto expected = instance.connect().generate(request, nullptr, nullptr, kPatience);
    ASSERT_TRUE(expected.ok()) << expected.error().message;
    std::vector<std::unique_ptr<BackgroundGeneration>> chats;
    begin_together(instance, 3, [&] {
        for (int i = 0; i < 3; ++i) {
            chats.push_back(std::make_unique<BackgroundGeneration>(instance, request));
        }
    });
    uint64_t before = 0;
    for (const char* role : {"attention", "ffn", "attention"}) {
        instance.wait_for("one gives way or all is over", [&](const client::Status& status) {
            return status.num_preemptions() > before ||
                   status.num_running() + status.num_queued() == 0;
        });
        const pid_t pid = instance.worker_pids(role).at(0);
        ASSERT_GT(pid, 0);
        kill(pid, SIGKILL);
        instance.wait_for("it is replaced", [&](const client::Status&) {
            const pid_t next = instance.worker_pids(role).at(0);
            return next > 0 && next != pid;
        });
        instance.wait_all_workers_ready();
        before = instance.status().num_preemptions();
    }
    EXPECT_GT(before, 0U);
    for (const auto& chat : chats) {
        expect_same_generation(expected.value(), chat->finish());
    }
    EXPECT_EQ(instance.stop(), 0);
}

}  // namespace
}  // namespace afd::test
