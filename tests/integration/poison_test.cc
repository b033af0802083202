// SPDX-License-Identifier: Apache-2.0
//
// R11 between processes: a descriptor whose execution has killed its FFN worker three times.

#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <filesystem>
#include <string>
#include <vector>

#include "schedule/layout/execution_log.h"
#include "schedule/shared_memory/segment.h"
#include "tests/integration/background_generation.h"
#include "tests/integration/instance.h"

namespace afd::test {
namespace {

// With A = 2 and M = 1 (docs/wire.md): two words behind two lines of acknowledged rounds.
constexpr uint64_t kExecutionsOffset = 2048 + 2 * 128;
constexpr uint32_t kPoisonedTokens = 300;

// The FFN worker's log of executions, as a stranger reads it.
class ExecutionWords {
  public:
    explicit ExecutionWords(const Instance& instance) {
        for (const std::string& name : instance.segments()) {
            if (!name.ends_with("-ffn0-control")) continue;
            auto segment = schedule::Segment::attach("/" + name,
                                                     std::filesystem::file_size("/dev/shm/" + name),
                                                     schedule::Segment::Access::kReadOnly);
            EXPECT_TRUE(segment.ok()) << segment.error().message;
            segment_ = std::move(segment.value());
        }
        EXPECT_NE(segment_.size(), 0U) << "no control segment";
    }

    uint64_t at(size_t session) const {
        const auto* words =
            reinterpret_cast<const uint64_t*>(segment_.const_data() + kExecutionsOffset);
        return std::atomic_ref<uint64_t>(const_cast<uint64_t&>(words[session]))
            .load(std::memory_order_acquire);
    }

  private:
    schedule::Segment segment_;
};

template <typename Holds>
void spin_until(const char* what, Holds&& holds) {
    const auto deadline = client::Clock::now() + kPatience;
    while (!holds()) ASSERT_LT(client::Clock::now(), deadline) << what;
}

// Kills the FFN worker during the execution of one descriptor of `session`, until it has died of
// it three times. An execution that was over before the kill counts for nothing.
void kill_thrice(const Instance& instance, const ExecutionWords& words, size_t session) {
    const auto deadline = client::Clock::now() + kPatience;
    pid_t last = 0;
    for (uint64_t seen = 0; static_cast<uint32_t>(seen) < schedule::ExecutionLog::kDeadly;) {
        pid_t ffn = last;
        while (ffn == last || ffn <= 0 || words.at(session) == seen || words.at(session) == 0) {
            ASSERT_LT(client::Clock::now(), deadline) << "no execution by a successor";
            const std::vector<pid_t> pids = instance.worker_pids("ffn");
            ffn = pids.empty() ? 0 : pids[0];
        }
        kill(ffn, SIGKILL);
        last = ffn;
        spin_until("the end of a killed process", [&] { return kill(ffn, 0) != 0; });
        seen = words.at(session);
    }
}

// Goal: such a descriptor ends its request with an error that says why; the other session's goes
// on. Oracle: the other request on an undisturbed system, bit for bit.
TEST(Poison, EndsItsRequestAfterThreeKillsAndNoOther) {
    // Portable kernels are slow enough for a kill to come before the end of an execution.
    Instance instance({"--attention-workers",
                       "2",
                       "--ffn-workers",
                       "1",
                       "--micro-batches",
                       "1",
                       "--micro-batch-size",
                       "1024",
                       "--numeric-class",
                       "portable"});
    instance.wait_ready();
    auto undisturbed = instance.connect().generate(long_request(kPoisonedTokens));
    ASSERT_TRUE(undisturbed.ok()) << undisturbed.error().message;

    const ExecutionWords words(instance);
    BackgroundGeneration other(instance, long_request(kPoisonedTokens));
    other.wait_for_tokens(1);
    size_t others_session = 2;
    spin_until("an execution", [&] {
        for (size_t session : {0, 1}) {
            if (words.at(session) != 0) others_session = session;
        }
        return others_session != 2;
    });
    client::Generate request = long_request(8);
    for (uint32_t i = 0; i < 1000; ++i) request.mutable_token_ids()->add_ids(2 + i % 200);
    BackgroundGeneration poison(instance, request);
    kill_thrice(instance, words, 1 - others_session);

    const auto refused = poison.finish();
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find("its execution has killed the worker 3 times"),
              std::string::npos)
        << refused.error().message;
    const auto found = other.finish();
    ASSERT_TRUE(found.ok()) << found.error().message;
    EXPECT_EQ(undisturbed.value().token_ids, found.value().token_ids);
    EXPECT_EQ(undisturbed.value().logprobs, found.value().logprobs);
    EXPECT_EQ(instance.stop(), 0);
}

}  // namespace
}  // namespace afd::test
