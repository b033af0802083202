// SPDX-License-Identifier: Apache-2.0
//
// What happens to a request when its workers are stopped, killed, or lose their supervisor.
//
// Oracle of every test with a generation: the same request on an undisturbed system, token ids and
// logprobs compared to the last bit.

#include <gtest/gtest.h>
#include <signal.h>
#include <time.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

#include "tests/integration/background_generation.h"
#include "tests/integration/instance.h"

namespace afd::test {
namespace {

const std::vector<std::string> kTwoAndOne = {"--attention-workers", "2", "--ffn-workers", "1"};
constexpr uint32_t kLongTokens = 900;

client::Generate with_prompt_logprobs(client::Generate request) {
    request.set_prompt_logprobs(true);
    return request;
}

bool is_alive(pid_t pid) {
    std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
    std::string line;
    std::getline(stat, line);
    const size_t name_end = line.rfind(')');
    return name_end != std::string::npos && line[name_end + 2] != 'Z';
}

void wait_gone(const std::vector<pid_t>& pids) {
    const auto deadline = client::Clock::now() + kPatience;
    for (const pid_t pid : pids) {
        while (is_alive(pid)) {
            ASSERT_LT(client::Clock::now(), deadline) << "process " << pid << " lives on";
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        }
    }
}

std::vector<pid_t> all_worker_pids(const Instance& instance) {
    std::vector<pid_t> pids = instance.worker_pids("attention");
    for (const pid_t pid : instance.worker_pids("ffn")) pids.push_back(pid);
    return pids;
}

TEST(Faults, TextComesFromThreeProcessesAndAStoppedFfnWorkerStopsItWithAReport) {
    std::vector<std::string> flags = kTwoAndOne;
    flags.insert(flags.end(), {"--stop-timeout-ms", "0"});
    Instance instance(flags);
    instance.wait_ready();
    std::vector<pid_t> pids = all_worker_pids(instance);
    pids.push_back(instance.pid());
    EXPECT_EQ(std::set<pid_t>(pids.begin(), pids.end()).size(), 4U);

    auto undisturbed = instance.connect().generate(long_request(kLongTokens));
    ASSERT_TRUE(undisturbed.ok()) << undisturbed.error().message;

    const pid_t ffn = instance.worker_pids("ffn")[0];
    BackgroundGeneration generation(instance, long_request(kLongTokens));
    generation.stop_amid(20, ffn);
    instance.wait_for("the status says who waits for whom",
                      [](const client::Status& status) { return status.waits_size() > 0; });
    const client::Status status = instance.status();
    EXPECT_NE(status.waits(0).find("ffn rank 0 (pid " + std::to_string(ffn)), std::string::npos)
        << status.waits(0);
    EXPECT_NE(status.waits(0).find("micro-batch"), std::string::npos) << status.waits(0);
    EXPECT_NE(status.waits(0).find("layer"), std::string::npos) << status.waits(0);
    const uint32_t before = generation.num_tokens();
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    EXPECT_EQ(generation.num_tokens(), before) << "tokens came although the experts are stopped";
    EXPECT_LT(before, kLongTokens);

    kill(ffn, SIGCONT);
    expect_same_generation(undisturbed.value(), generation.finish());
    EXPECT_NE(instance.log().find(status.waits(0).substr(0, 40)), std::string::npos)
        << "the log does not tell who waited";
    EXPECT_EQ(instance.stop(), 0);
}

// Which side routes, which computes the shared experts, and how rows travel: the recovery is the
// same.
struct Sides {
    const char* router;
    const char* shared_experts;
    const char* dispatch_dtype = "bf16";
};

class FaultsWithSides : public testing::TestWithParam<Sides> {
  protected:
    static Instance start(const char* attention_workers, const char* ffn_workers) {
        return Instance({"--attention-workers",
                         attention_workers,
                         "--ffn-workers",
                         ffn_workers,
                         "--router",
                         GetParam().router,
                         "--shared-experts",
                         GetParam().shared_experts,
                         "--dispatch-dtype",
                         GetParam().dispatch_dtype,
                         "--stop-timeout-ms",
                         "0"});
    }
};

INSTANTIATE_TEST_SUITE_P(Sides,
                         FaultsWithSides,
                         testing::Values(Sides{"attention", "ffn"},
                                         Sides{"ffn", "ffn"},
                                         Sides{"attention", "attention"},
                                         Sides{"attention", "ffn", "fp8"}),
                         [](const auto& sides) {
                             return std::string("router_") + sides.param.router + "_shared_" +
                                    sides.param.shared_experts + "_" + sides.param.dispatch_dtype;
                         });

TEST_P(FaultsWithSides, AKilledFfnWorkerComesBackAndTheBitsAreTheSame) {
    Instance instance = start("2", "2");
    instance.wait_ready();
    expect_same_bits_through_kills(
        instance, long_request(kLongTokens), {{"ffn", 0}, {"ffn", 1}, {"ffn", 0}});
    uint32_t num_restarts = 0;
    const client::Status status = instance.status();
    for (const client::Worker& worker : status.workers()) num_restarts += worker.num_restarts();
    EXPECT_EQ(num_restarts, 3U);
    EXPECT_EQ(instance.stop(), 0);
}

TEST_P(FaultsWithSides, AKilledAttentionWorkersRequestsAreReplayedWithTheSameBits) {
    Instance instance = start("1", "2");
    instance.wait_ready();
    expect_same_bits_through_kills(
        instance, with_prompt_logprobs(long_request(600)), {{"attention", 0}});
    EXPECT_EQ(instance.status().router(), GetParam().router);
    EXPECT_EQ(instance.status().shared_experts(), GetParam().shared_experts);
    EXPECT_EQ(instance.status().dispatch_dtype(), GetParam().dispatch_dtype);
    EXPECT_EQ(instance.stop(), 0);
}

// Goal: one request survives the end of a worker of each role. Few tokens and one instance, since
// tests/golden does this with a model of every family.
TEST(Faults, AWorkerOfEachRoleIsKilledInOneRequest) {
    Instance instance({"--attention-workers", "1", "--ffn-workers", "2", "--stop-timeout-ms", "0"});
    instance.wait_ready();
    const client::Generate request = with_prompt_logprobs(long_request(600));
    const auto undisturbed = instance.connect().generate(request);
    ASSERT_TRUE(undisturbed.ok()) << undisturbed.error().message;
    BackgroundGeneration generation(instance, request);
    const pid_t ffn = instance.worker_pids("ffn")[0];
    const pid_t attention = instance.worker_pids("attention")[0];
    BackgroundGeneration::stop_amid({&generation}, 30, std::vector<pid_t>{ffn, attention});
    instance.replace_worker("ffn", 0, SIGKILL);
    instance.replace_worker("attention", 0, SIGKILL);
    expect_same_generation(undisturbed.value(), generation.finish());
    EXPECT_EQ(instance.stop(), 0);
}

// Goal: a crash ends a worker at once, and no library's handler says or allocates anything before.
// Oracle: each line of the log of afdd and its workers is one that they write themselves.
TEST(Faults, ACrashSaysNothingOfItsOwn) {
    Instance instance({"--log-format", "json"});
    instance.wait_ready();
    for (const char* role : {"ffn", "attention"}) instance.replace_worker(role, 0, SIGSEGV);
    EXPECT_EQ(instance.stop(), 0);
    std::istringstream lines(instance.log());
    size_t num_lines = 0;
    for (std::string line; std::getline(lines, line); ++num_lines) {
        EXPECT_TRUE(line.starts_with('{')) << line;
    }
    EXPECT_GT(num_lines, 0U);
}

TEST(Faults, NothingIsLeftAfterATermSignalOrCtrlC) {
    for (const int number : {SIGTERM, SIGINT}) {
        Instance instance(kTwoAndOne);
        instance.wait_ready();
        const std::vector<pid_t> pids = all_worker_pids(instance);
        EXPECT_FALSE(instance.segments().empty());
        instance.signal(number);
        EXPECT_EQ(instance.wait_exit(), 0);
        EXPECT_TRUE(instance.segments().empty());
        wait_gone(pids);
    }
}

TEST(Faults, ADrainFinishesWhatRunsAndRefusesWhatIsNew) {
    Instance instance(patient_pair());
    instance.wait_ready();
    const pid_t ffn = instance.worker_pids("ffn")[0];
    BackgroundGeneration generation(instance, long_request(kLongTokens));
    generation.stop_amid(10, ffn);
    instance.signal(SIGTERM);
    instance.wait_for("it drains",
                      [](const client::Status& status) { return status.state() == "draining"; });
    const auto refused = instance.connect().generate(long_request(1));
    send_signal(ffn, SIGCONT);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, Code::kFailedPrecondition) << refused.error().message;
    auto found = generation.finish();
    ASSERT_TRUE(found.ok()) << found.error().message;
    EXPECT_EQ(found.value().token_ids.size(), kLongTokens);
    EXPECT_EQ(instance.wait_exit(), 0);
}

TEST(Faults, AKilledAfddTakesItsWorkersAlongAndANewStartCleansUp) {
    Instance instance(kTwoAndOne);
    instance.wait_ready();
    const std::vector<pid_t> pids = all_worker_pids(instance);
    const std::vector<std::string> left = instance.segments();
    instance.signal(SIGKILL);
    EXPECT_EQ(instance.wait_exit(), 128 + SIGKILL);
    wait_gone(pids);
    EXPECT_EQ(instance.segments(), left) << "nobody else removes them";

    const Outcome outcome =
        run_program({"/bin/sh",
                     "-c",
                     program("afdd") + " --model " + test_model() + " --instance " +
                         instance.name() + " & pid=$!; for i in $(seq 600); do " +
                         program("afdctl") + " --instance " + instance.name() +
                         " status --json 2>/dev/null | grep -q '\"state\": *\"ready\"' && break;"
                         " sleep 0.1; done; ls /dev/shm; kill -TERM $pid; wait $pid"},
                    instance.runtime_directory());
    EXPECT_EQ(outcome.exit_status, 0) << outcome.output;
    for (const std::string& name : left) {
        EXPECT_EQ(outcome.output.find(name), std::string::npos) << name << " is still there";
    }
    EXPECT_TRUE(instance.segments().empty());
}

// CPU time of all threads of a process.
std::chrono::nanoseconds cpu_time(pid_t pid) {
    clockid_t clock{};
    timespec time{};
    EXPECT_EQ(clock_getcpuclockid(pid, &clock), 0) << pid;
    EXPECT_EQ(clock_gettime(clock, &time), 0) << pid;
    return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

TEST(Idle, ASystemWithoutRequestsUsesUnderOnePercentOfACore) {
    Instance instance(kTwoAndOne);
    instance.wait_ready();
    ASSERT_TRUE(instance.connect().generate(long_request(20)).ok());
    std::vector<pid_t> pids = all_worker_pids(instance);
    pids.push_back(instance.pid());
    std::this_thread::sleep_for(std::chrono::seconds(1));
    const auto total = [&] {
        std::chrono::nanoseconds time{0};
        for (const pid_t pid : pids) time += cpu_time(pid);
        return time;
    };
    constexpr std::chrono::milliseconds kOnePercent{50};
    auto least = std::chrono::nanoseconds::max();
    // Wake-ups cost more while others displace the caches: one of some spans has to do.
    for (int span = 0; span < 4 && least > kOnePercent; ++span) {
        const auto before = total();
        std::this_thread::sleep_for(std::chrono::seconds(5));
        least = std::min(least, total() - before);
    }
    EXPECT_LE(least.count(), std::chrono::nanoseconds(kOnePercent).count());
}

}  // namespace
}  // namespace afd::test
