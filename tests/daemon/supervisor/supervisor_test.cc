// SPDX-License-Identifier: Apache-2.0
//
// The supervisor with processes that it starts itself.
#include <fmt/format.h>

#include <chrono>
#include <csignal>
#include <string>
#include <thread>
#include <vector>

#include "daemon/supervisor/visitors.h"
#include "tests/daemon/attention/fake_token.h"
#include "tests/daemon/control/scarce_kernel.h"
#include "tests/daemon/gateway/test_client.h"
#include "tests/daemon/supervisor/supervisor_fixture.h"

namespace afd::daemon {
namespace {

using testing::HasSubstr;

TEST_F(SupervisorTest, StartsAllWorkersAndServes) {
    start();
    ASSERT_TRUE(run_until(loop_, [&] { return program_.is_ready; }));
    TestClient client(loop_, *gateway_);
    client.send(generate(1, "abc", 50));
    ASSERT_TRUE(run_until(loop_, [&] {
        client.receive();
        return client.last(1) != nullptr && client.last(1)->has_finished();
    }));
    EXPECT_EQ(client.text(1), fake_text(3, 3, 50));
    EXPECT_EQ(worker("ffn", 0).state(), "ready");
    EXPECT_GT(worker("ffn", 0).pid(), 0U);
}

// Promise 2 as far as afdd goes: attention workers are killed while they stream, and the text of
// every request is what it would have been.
TEST_F(SupervisorTest, KilledWorkersCostNoToken) {
    const ScopedVariable slow("AFD_FAKE_TOKEN_MS", "2");
    start();
    ASSERT_TRUE(run_until(loop_, [&] { return program_.is_ready; }));
    TestClient client(loop_, *gateway_);
    constexpr uint64_t kRequests = 6;
    // A second behind the last kill, should a worker take that long to come back.
    constexpr uint32_t kTokens = 600;
    for (uint64_t id = 1; id <= kRequests; ++id) client.send(generate(id, "abc", kTokens));
    uint32_t num_kills = 0;
    ASSERT_TRUE(run_until(loop_, [&] {
        client.receive();
        // Kill the next worker whenever the first request has come 30 tokens further.
        const client::Worker victim = worker("attention", num_kills % 2);
        if (num_kills < 4 && client.text(1).size() > 30 * (num_kills + 1) &&
            victim.state() == "ready") {
            ::kill(static_cast<pid_t>(victim.pid()), SIGKILL);
            ++num_kills;
        }
        return gateway_->num_in_flight() == 0 && gateway_->num_finished() == kRequests;
    }));
    EXPECT_EQ(num_kills, 4U);
    ASSERT_TRUE(run_until(loop_, [&] {
        client.receive();
        return client.last(kRequests) != nullptr && client.last(kRequests)->has_finished();
    }));
    for (uint64_t id = 1; id <= kRequests; ++id) {
        EXPECT_EQ(client.text(id), fake_text(3, 3, kTokens)) << "request " << id;
    }
}

TEST_F(SupervisorTest, KilledFfnWorkerIsReplaced) {
    start();
    ASSERT_TRUE(run_until(loop_, [&] { return program_.is_ready; }));
    const uint32_t pid = worker("ffn", 0).pid();
    ::kill(static_cast<pid_t>(pid), SIGKILL);
    ASSERT_TRUE(run_until(loop_, [&] {
        const client::Worker now = worker("ffn", 0);
        return now.pid() != pid && now.state() == "ready";
    }));
    EXPECT_EQ(worker("ffn", 0).num_restarts(), 1U);
}

// Goal: what afdd has no room to send just now, it sends later. Method: the sends of the Welcomes
// fail, as they do where this user has too many descriptors on their way. Oracle: every worker's
// first process gets ready.
TEST_F(SupervisorTest, AShortageOfTheKernelHoldsAWelcomeUpAndNoMore) {
    ScarceKernel::fail_sends(7, ETOOMANYREFS);
    start();
    ASSERT_TRUE(run_until(loop_, [&] { return program_.is_ready; }));
    EXPECT_EQ(ScarceKernel::num_left(), 0);
    const client::Status now = status();
    for (const client::Worker& worker : now.workers()) EXPECT_EQ(worker.num_restarts(), 0U);
}

// Goal: a round is voided when its rank is lost, and not when it is back; who has the place next
// hears of it, and after its Ready it is forgotten (R12). Method: attention workers that
// ask for it when the rank is lost, and when it is back. Oracle: what all of them report.
TEST_F(SupervisorTest, VoidsRoundsOfARankThatHasNoProcess) {
    config_.attention_workers = 1;
    // Time for the question before there is a successor.
    config_.restart_first_ms = config_.restart_max_ms = 500;
    can_do_without_ = [](const std::vector<bool>&) { return true; };
    auto asks = std::make_unique<ScopedVariable>("AFD_FAKE_VOID", "1");
    start();
    ASSERT_TRUE(run_until(loop_, [&] { return program_.is_ready; }));
    ::kill(static_cast<pid_t>(worker("ffn", 0).pid()), SIGKILL);
    EXPECT_TRUE(reports("attention", 0, "round 5 at rank 0 is void"));
    EXPECT_TRUE(reports("ffn", 0, "session 0, micro-batch 1: round 5 is void"));
    EXPECT_TRUE(reports("attention", 0, "round 6 at rank 0 is not void")) << "it is back";
    // From here on nobody asks.
    asks.reset();
    ::kill(static_cast<pid_t>(worker("attention", 0).pid()), SIGKILL);
    ASSERT_TRUE(run_until(loop_, [&] { return worker("attention", 0).state() == "back-off"; }));
    ASSERT_TRUE(wait_for_state("attention", 0, "ready"));
    ::kill(static_cast<pid_t>(worker("ffn", 0).pid()), SIGKILL);
    ASSERT_TRUE(run_until(loop_, [&] { return worker("ffn", 0).state() == "back-off"; }));
    ASSERT_TRUE(wait_for_state("ffn", 0, "ready"));
    EXPECT_THAT(waits(), testing::IsEmpty()) << "what was voided is forgotten";
}

// Goal: a session that asks late does not wait until the rank's successor has its weights (R12).
// Method: the successor starts at once and waits; only then a session asks, which is new. Oracle:
// the answer, and what the successor hears when it has waited.
TEST_F(SupervisorTest, VoidsRoundsWhileTheSuccessorLoadsItsWeights) {
    config_.attention_workers = 1;
    config_.restart_first_ms = 0;
    can_do_without_ = [](const std::vector<bool>&) { return true; };
    start();
    ASSERT_TRUE(run_until(loop_, [&] { return program_.is_ready; }));
    const std::string loaded = directory_.path("loaded");
    auto loads = std::make_unique<ScopedVariable>("AFD_FAKE_HANG", loaded.c_str());
    ::kill(static_cast<pid_t>(worker("ffn", 0).pid()), SIGKILL);
    ASSERT_TRUE(wait_for_state("ffn", 0, "starting"));
    loads.reset();
    const ScopedVariable asks("AFD_FAKE_VOID", "1");
    ::kill(static_cast<pid_t>(worker("attention", 0).pid()), SIGKILL);
    EXPECT_TRUE(reports("attention", 0, "round 5 at rank 0 is void"));
    EXPECT_EQ(worker("ffn", 0).state(), "starting");
    directory_.write("loaded", "");
    EXPECT_TRUE(reports("ffn", 0, "session 0, micro-batch 1: round 5 is void"));
    EXPECT_TRUE(reports("attention", 0, "round 6 at rank 0 is not void")) << "it is back";
}

// R16: its process may run on behind a partition, and sessions need no word of afdd.
TEST_F(SupervisorTest, VoidsNoRoundsBetweenMachines) {
    is_over_ucx_ = true;
    config_.attention_workers = 1;
    config_.restart_first_ms = config_.restart_max_ms = 500;
    can_do_without_ = [](const std::vector<bool>&) { return true; };
    const ScopedVariable asks("AFD_FAKE_VOID", "1");
    start();
    ASSERT_TRUE(run_until(loop_, [&] { return program_.is_ready; }));
    ::kill(static_cast<pid_t>(worker("ffn", 0).pid()), SIGKILL);
    EXPECT_TRUE(reports("attention", 0, "round 5 at rank 0 is not void"));
}

// Goal: no process of this user can fill the log. Method: a hundred of them ask for a slot that
// they cannot have. Oracle: each hears why; the lines.
TEST_F(SupervisorTest, RefusedVisitorsAreALineNowAndThen) {
    start();
    ASSERT_TRUE(run_until(loop_, [&] { return program_.is_ready; }));
    set_log_level("warn");
    testing::internal::CaptureStderr();
    constexpr size_t kVisitors = 100;
    for (size_t i = 0; i < kVisitors; ++i) {
        EXPECT_THAT(answer_to_hello(control::FFN).refused().message(), HasSubstr("belongs to pid"));
    }
    const std::string lines = testing::internal::GetCapturedStderr();
    set_log_level("off");
    EXPECT_THAT(lines, HasSubstr("refused a worker connection of pid "));
    EXPECT_LT(num_lines_with("refused a worker connection", lines), kVisitors);
}

// Goal: strangers that fill the control socket keep no worker of afdd away. Method: as many as are
// taken, and a worker that dies. Oracle: its successor is ready at the first attempt, long before
// the strangers' time is over.
TEST_F(SupervisorTest, StrangersGiveWayToAWorker) {
    start();
    ASSERT_TRUE(run_until(loop_, [&] { return program_.is_ready; }));
    const size_t num_max = Visitors::num_max(config_.attention_workers + config_.ffn_workers);
    std::vector<UniqueFd> strangers;
    for (size_t i = 0; i < num_max; ++i) strangers.push_back(connect());
    ::kill(static_cast<pid_t>(worker("ffn", 0).pid()), SIGKILL);
    ASSERT_TRUE(run_until(loop_, [&] { return worker("ffn", 0).num_restarts() > 0; }));
    ASSERT_TRUE(wait_for_state("ffn", 0, "ready"));
    EXPECT_EQ(worker("ffn", 0).num_restarts(), 1U);
}

// Goal: a Hello that came in time is read, however late afdd comes to it. Method: the loop stands
// still for longer than a visitor has, as if afdd had been stopped. Oracle: the answer.
TEST_F(SupervisorTest, AHelloThatWaitedForAfddIsHeard) {
    start();
    ASSERT_TRUE(run_until(loop_, [&] { return program_.is_ready; }));
    ControlChannel stranger(connect());
    EXPECT_FALSE(run_for(loop_, 200, [] { return false; }));
    say_hello_as_stranger(stranger, control::FFN);
    std::this_thread::sleep_for(std::chrono::milliseconds(2500));
    EXPECT_THAT(answer_on(stranger).refused().message(), HasSubstr("belongs to pid"));
}

// Goal: what a worker says costs afdd and its clients no more than a line. Oracle: the lengths of
// what was said, and of what is shown.
TEST_F(SupervisorTest, LongTextsOfAWorkerAreShortened) {
    config_.attention_workers = 1;
    const ScopedVariable wait("AFD_FAKE_LONG_WAIT", "1000000");
    start();
    // As long as the peer starts, afdd says that instead.
    std::string line;
    EXPECT_TRUE(run_until(loop_, [&] {
        const std::vector<std::string> all = waits();
        if (!all.empty()) line = all.front();
        return line.find("t; ppp") != std::string::npos;
    })) << line;
    EXPECT_THAT(line, testing::StartsWith("attention worker 0: ttt"));
    EXPECT_LT(line.size(), 3000U);
}

TEST_F(SupervisorTest, TheLastWordOfAWorkerIsShortened) {
    const std::string why(100'000, 'w');
    const ScopedVariable fail("AFD_FAKE_FAIL", why.c_str());
    start();
    ASSERT_TRUE(run_until(loop_, [&] { return !program_.given_up.empty(); }));
    EXPECT_THAT(program_.given_up, HasSubstr("exited with status 1: www"));
    EXPECT_LT(program_.given_up.size(), 2000U);
}

// Goal: who waits for a dead worker sees what that did last; afdd knows better, and says so, also
// when it changes. Method: the rank dies, is halted, and is to run again. Oracle: the wait's line.
TEST_F(SupervisorTest, AWaitForADeadWorkerSaysThatItIsDead) {
    const ScopedVariable waits("AFD_FAKE_WAIT", "1");
    config_.attention_workers = 1;
    config_.restart_first_ms = config_.restart_max_ms = 3'600'000;
    start();
    ASSERT_TRUE(run_until(loop_, [&] { return program_.is_ready; }));
    const auto says = [&](const std::string& what) {
        return run_until(loop_, [&] {
            const std::vector<std::string> all = SupervisorTest::waits();
            return all.size() == 1 &&
                   all.front().starts_with("attention worker 0: it waits; " + what);
        });
    };
    ::kill(static_cast<pid_t>(worker("ffn", 0).pid()), SIGKILL);
    EXPECT_TRUE(says("the peer is dead, starts again in 3"));
    supervisor_->set_run_flag(control::FFN, 0, false);
    EXPECT_TRUE(says("the peer is halted"));
    supervisor_->set_run_flag(control::FFN, 0, true);
    EXPECT_TRUE(says("the peer is starting (pid "));
    EXPECT_TRUE(says("the peer is idle")) << "it serves, and what the other sees of it is true";
}

TEST_F(SupervisorTest, AWaitForAWorkerWhoseHostIsAwayNamesTheHost) {
    const ScopedVariable waits("AFD_FAKE_WAIT", "1");
    config_.attention_workers = 1;
    ASSERT_NO_FATAL_FAILURE(start_and_lose_host_b());
    EXPECT_TRUE(reports("attention", 0, "it waits; the peer is away: its host b has not joined"));
}

// What the worker says is a sentence of its own, and nothing is put behind it.
TEST_F(SupervisorTest, AWorkerThatFailsBeforeItIsReadyHasTheLastWord) {
    const ScopedVariable fail("AFD_FAKE_FAIL", "no memory; configure fewer tokens");
    set_log_level("error");
    testing::internal::CaptureStderr();
    start();
    EXPECT_TRUE(run_until(loop_, [&] { return !program_.given_up.empty(); }));
    const std::string lines = testing::internal::GetCapturedStderr();
    set_log_level("off");
    EXPECT_THAT(lines,
                HasSubstr("), before it was ready: exited with status 1: no memory; "
                          "configure fewer tokens\n"));
}

TEST_F(SupervisorTest, WorkerThatCrashesAtEveryStartIsGivenUp) {
    const ScopedVariable crash("AFD_FAKE_CRASH", "1");
    start();
    ASSERT_TRUE(run_until(loop_, [&] { return !program_.given_up.empty(); }));
    EXPECT_THAT(program_.given_up, HasSubstr("killed by signal 6"));
    EXPECT_THAT(program_.given_up, HasSubstr("(3 attempts)"));
}

TEST_F(SupervisorTest, FailureThatNoRestartMendsIsGivenUpAtOnceWithItsReason) {
    const ScopedVariable failure("AFD_FAKE_FAIL", "tensor x is missing");
    start();
    ASSERT_TRUE(run_until(loop_, [&] { return !program_.given_up.empty(); }));
    EXPECT_THAT(program_.given_up, HasSubstr("exited with status 1: tensor x is missing"));
}

TEST_F(SupervisorTest, MissingProgramIsGivenUpWithItsPath) {
    start();
    // The two programs exist; a supervisor that looks elsewhere finds none.
    const test::TemporaryDirectory empty;
    Supervisor::Plan plan;
    plan.config = config_;
    plan.cpus = plan_cpus(config_, {0}).value();
    plan.control_socket = directory_.path("other.sock");
    plan.worker_directory = empty.path("");
    EventLoop loop;
    auto door = WorkerDoor::open(loop, plan.control_socket);
    ASSERT_TRUE(door.ok()) << door.error().message;
    auto supervisor = Supervisor::create(loop, *door.value(), std::move(plan));
    ASSERT_TRUE(supervisor.ok());
    supervisor.value()->start(*gateway_, program_);
    ASSERT_TRUE(run_until(loop, [&] { return !program_.given_up.empty(); }));
    EXPECT_THAT(program_.given_up, HasSubstr("cannot start"));
    EXPECT_THAT(program_.given_up, HasSubstr("no such file"));
}

TEST_F(SupervisorTest, GarbageAndStrangersOnTheControlSocketHarmNobody) {
    start();
    ASSERT_TRUE(run_until(loop_, [&] { return program_.is_ready; }));
    const UniqueFd garbage = connect();
    ASSERT_EQ(::send(garbage.get(), "\xff\xff\xff\xffxx", 6, 0), 6);
    // A stranger asks for the slot of a living worker.
    EXPECT_THAT(answer_to_hello(control::FFN).refused().message(),
                HasSubstr("ffn worker 0 belongs to pid"));
    EXPECT_EQ(worker("ffn", 0).state(), "ready");
}

TEST_F(SupervisorTest, WorkerOfAnotherBuildIsRefused) {
    start();
    ASSERT_TRUE(run_until(loop_, [&] { return program_.is_ready; }));
    EXPECT_EQ(answer_to_hello(control::FFN, kControlVersion + 1).refused().message(),
              fmt::format("the worker speaks control protocol {}, afdd {}: they are from different "
                          "builds",
                          kControlVersion + 1,
                          kControlVersion));
    EXPECT_EQ(worker("ffn", 0).state(), "ready");
}

// Goal: run_flag = 0 ends a worker as if it had been told to, and nobody starts it again before the
// flag is set. Oracle: the slots' states and pids, and the word that the workers see.
TEST_F(SupervisorTest, RunFlagZeroEndsAWorkerUntilItIsSetAgain) {
    config_.attention_workers = 1;
    config_.restart_reset_ms = 1;
    start();
    ASSERT_TRUE(run_until(loop_, [&] { return program_.is_ready; }));
    const uint32_t first = worker("ffn", 0).pid();
    set_run_flags(false);
    EXPECT_TRUE(wait_for_state("ffn", 0, "halted"));
    EXPECT_TRUE(wait_for_state("attention", 0, "halted"));
    EXPECT_FALSE(words_.run_flag());
    // More than the longest back-off of a crash.
    EXPECT_FALSE(run_for(
        loop_, 4 * config_.restart_max_ms, [&] { return worker("ffn", 0).state() != "halted"; }));
    set_run_flags(true);
    EXPECT_TRUE(wait_for_state("ffn", 0, "ready"));
    EXPECT_NE(worker("ffn", 0).pid(), first);
    EXPECT_TRUE(wait_for_state("attention", 0, "ready"));
    EXPECT_TRUE(words_.run_flag());
    EXPECT_EQ(program_.given_up, "");
}

// As a restart asks for it: the flag is set again before the process has ended.
TEST_F(SupervisorTest, ARunFlagThatIsSetAgainAtOnceIsARestart) {
    start();
    ASSERT_TRUE(run_until(loop_, [&] { return program_.is_ready; }));
    const uint32_t first = worker("ffn", 0).pid();
    set_run_flags(false);
    set_run_flags(true);
    EXPECT_TRUE(run_until(loop_, [&] {
        const client::Worker now = worker("ffn", 0);
        return now.state() == "ready" && now.pid() != first;
    }));
}

// Goal: whoever can write the segments of a worker cannot have afdd end it, or keep it down.
// Method: a plain store of 0 into the word that workers see; then the worker dies. Oracle: the
// slot's state, and what the next worker sees.
TEST_F(SupervisorTest, ARunFlagThatOthersHaveStoredEndsNobody) {
    start();
    ASSERT_TRUE(run_until(loop_, [&] { return program_.is_ready; }));
    const uint32_t first = worker("ffn", 0).pid();
    words_.set_run_flag(false);
    EXPECT_FALSE(run_for(loop_, 100, [&] { return worker("ffn", 0).state() != "ready"; }));
    EXPECT_EQ(worker("ffn", 0).pid(), first);
    ::kill(static_cast<pid_t>(first), SIGKILL);
    EXPECT_TRUE(run_until(loop_, [&] {
        const client::Worker now = worker("ffn", 0);
        return now.state() == "ready" && now.pid() != first;
    }));
    EXPECT_TRUE(words_.run_flag());
}

}  // namespace
}  // namespace afd::daemon
