// SPDX-License-Identifier: Apache-2.0
//
// R11 between processes: a descriptor whose execution has killed its FFN worker three times.

#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
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
constexpr uint32_t kPoisonedTokens = 900;

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

// Often: what is waited for here takes less than a millisecond.
void watch_until(const std::string& what, const std::function<bool()>& holds) {
    wait_until(what, holds, std::chrono::microseconds(100));
}

// The state letter of /proc/PID/stat; 0: there is no such process.
char state_of(pid_t pid) {
    std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
    std::string line;
    std::getline(stat, line);
    const size_t end_of_name = line.rfind(')');
    return end_of_name == std::string::npos ? 0 : line.at(end_of_name + 2);
}

size_t session_that_runs_one(const Instance& instance) {
    size_t session = 0;
    watch_until("a request of an attention worker", [&] {
        const client::Status now = instance.status();
        for (const client::Worker& worker : now.workers()) {
            session = worker.index();
            if (worker.role() == "attention" && worker.num_sequences() == 1) return true;
        }
        return false;
    });
    return session;
}

// Kills the FFN worker during the execution of one descriptor of `session`, until it has died of
// it three times. It is stopped now and then, and killed if it was in the middle of one: so what
// is seen is what it dies of, however late this thread is.
void kill_thrice(const Instance& instance, const ExecutionWords& words, size_t session) {
    uint64_t seen = 0;
    watch_until("three deaths", [&] {
        const std::vector<pid_t> pids = instance.worker_pids("ffn");
        if (pids.empty() || pids[0] <= 0 || kill(pids[0], SIGSTOP) != 0) return false;
        watch_until("a process that is stopped", [&] {
            const char state = state_of(pids[0]);
            return state == 'T' || state == 'Z' || state == 0;
        });
        if (words.at(session) == seen || words.at(session) == 0) {
            kill(pids[0], SIGCONT);
            return false;
        }
        kill(pids[0], SIGKILL);
        watch_until("the end of a killed process", [&] { return kill(pids[0], 0) != 0; });
        seen = words.at(session);
        return static_cast<uint32_t>(seen) == schedule::ExecutionLog::kDeadly;
    });
}

// Goal: such a descriptor ends its request with an error that says why; the other session's goes
// on. Oracle: the other request on an undisturbed system, bit for bit.
TEST(Poison, EndsItsRequestAfterThreeKillsAndNoOther) {
    // Portable kernels are slow enough to be stopped in the middle of an execution.
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
    const size_t others_session = session_that_runs_one(instance);
    client::Generate request = long_request(8);
    for (uint32_t i = 0; i < 1000; ++i) request.mutable_token_ids()->add_ids(2 + i % 200);
    BackgroundGeneration poison(instance, request);
    kill_thrice(instance, words, 1 - others_session);
    EXPECT_LT(other.num_tokens(), kPoisonedTokens) << "it was over before";

    const auto refused = poison.finish();
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find("its execution has killed the worker 3 times"),
              std::string::npos)
        << refused.error().message;
    expect_same_generation(undisturbed.value(), other.finish());
    EXPECT_EQ(instance.stop(), 0);
}

}  // namespace
}  // namespace afd::test
