// SPDX-License-Identifier: Apache-2.0
//
// Workers that hang or are stopped, while they start and when they serve.

#include <chrono>
#include <csignal>
#include <fstream>
#include <thread>

#include "tests/daemon/supervisor/supervisor_fixture.h"

namespace afd::daemon {
namespace {

using testing::HasSubstr;

// Goal: a worker that hangs before it is ready does not hang for ever, and the reason is said.
// Method: workers that wait for a file. Oracle: they are killed until they are given up, with the
// words; if the file comes in time, the next process gets ready.
TEST_F(SupervisorTest, WorkerThatHangsBeforeItIsReadyIsKilledAndGivenUpWithTheReason) {
    const std::string file = directory_.path("go_on");
    const ScopedVariable hang("AFD_FAKE_HANG", file.c_str());
    config_.start_timeout_ms = 100;
    start();
    ASSERT_TRUE(run_until(loop_, [&] { return !program_.given_up.empty(); }));
    EXPECT_THAT(program_.given_up, HasSubstr("it is not ready after start_timeout_ms = 100"));
    EXPECT_THAT(program_.given_up, HasSubstr("(3 attempts)"));
}

TEST_F(SupervisorTest, WorkerThatHangsBeforeItIsReadyIsTriedAgain) {
    const std::string file = directory_.path("go_on");
    const ScopedVariable hang("AFD_FAKE_HANG", file.c_str());
    config_.start_timeout_ms = 1000;
    config_.start_attempts = 100;
    start();
    ASSERT_TRUE(run_until(loop_, [&] { return worker("ffn", 0).num_restarts() > 0; }));
    std::ofstream(file).put('x');
    ASSERT_TRUE(run_until(loop_, [&] { return program_.is_ready; }));
    const uint32_t pid = worker("ffn", 0).pid();
    // A time-out of the start must not end a worker that serves.
    EXPECT_FALSE(run_for(loop_, 1500, [&] { return worker("ffn", 0).pid() != pid; }));
}

// Goal: a large model may take its time to load. Method: a start that takes longer than the
// time-out, with time for the weights. Oracle: the first processes get ready.
TEST_F(SupervisorTest, WorkerWithMuchToLoadHasMoreTimeToGetReady) {
    const std::string file = directory_.path("go_on");
    const ScopedVariable hang("AFD_FAKE_HANG", file.c_str());
    config_.start_timeout_ms = 100;
    load_ms_ = 600'000;
    start();
    EXPECT_FALSE(run_for(loop_, 500, [&] { return worker("ffn", 0).num_restarts() > 0; }));
    std::ofstream(file).put('x');
    ASSERT_TRUE(run_until(loop_, [&] { return program_.is_ready; }));
    EXPECT_EQ(worker("ffn", 0).num_restarts(), 0U);
}

// Goal: a start that was stopped with afdd has not lasted too long. Method: the loop does not turn
// for longer than the time-out, as in a job that is suspended. Oracle: the first processes get
// ready.
TEST_F(SupervisorTest, WorkerThatStartsIsNotLateBecauseAfddWasStopped) {
    const std::string file = directory_.path("go_on");
    const ScopedVariable hang("AFD_FAKE_HANG", file.c_str());
    config_.start_timeout_ms = 6000;
    start();
    EXPECT_FALSE(run_for(loop_, 300, [&] { return worker("ffn", 0).num_restarts() > 0; }));
    std::this_thread::sleep_for(std::chrono::milliseconds(6500));
    std::ofstream(file).put('x');
    ASSERT_TRUE(run_until(loop_, [&] { return program_.is_ready; }));
    EXPECT_EQ(worker("ffn", 0).num_restarts(), 0U);
}

TEST_F(SupervisorTest, HungWorkerIsKilledAndReplaced) {
    config_.hang_timeout_ms = 600;
    schedule::HeartbeatView hung;
    hung.pid = 1;
    hung.progress = 42;
    hung.state = schedule::WorkerState::kComputing;
    start();
    ASSERT_TRUE(run_until(loop_, [&] { return program_.is_ready; }));
    heartbeats_[{control::FFN, 0}] = hung;
    const uint32_t pid = worker("ffn", 0).pid();
    ASSERT_TRUE(run_until(loop_, [&] { return worker("ffn", 0).pid() != pid; }));
    EXPECT_EQ(worker("attention", 0).num_restarts(), 0U);
}

TEST_F(SupervisorTest, SilentIdleWorkerLivesUntilSomebodyWaitsForIt) {
    config_.hang_timeout_ms = 600;
    schedule::HeartbeatView idle;
    idle.pid = 1;
    idle.state = schedule::WorkerState::kIdle;
    schedule::HeartbeatView waiting = idle;
    waiting.state = schedule::WorkerState::kWaiting;
    waiting.wait.kind = schedule::WaitKind::kResults;
    waiting.wait.peer = 0;
    heartbeats_[{control::FFN, 0}] = idle;
    start();
    ASSERT_TRUE(run_until(loop_, [&] { return program_.is_ready; }));
    const uint32_t pid = worker("ffn", 0).pid();
    const uint64_t start_ms = loop_.now_ms();
    ASSERT_TRUE(run_until(loop_, [&] { return loop_.now_ms() - start_ms > 2000; }));
    EXPECT_EQ(worker("ffn", 0).pid(), pid);
    heartbeats_[{control::ATTENTION, 1}] = waiting;
    ASSERT_TRUE(run_until(loop_, [&] {
        waiting.progress = ++progress_;
        heartbeats_[{control::ATTENTION, 1}] = waiting;
        return worker("ffn", 0).pid() != pid;
    }));
}

TEST_F(SupervisorTest, StoppedWorkerIsShownAsStopped) {
    start();
    ASSERT_TRUE(run_until(loop_, [&] { return program_.is_ready; }));
    const auto pid = static_cast<pid_t>(worker("attention", 1).pid());
    ::kill(pid, SIGSTOP);
    EXPECT_TRUE(wait_for_state("attention", 1, "stopped"));
    ::kill(pid, SIGCONT);
    EXPECT_TRUE(wait_for_state("attention", 1, "ready"));
}

// Goal: a worker that is stopped does not keep everybody waiting for as long as one that may be
// computing. Method: SIGSTOP, and no time-out for hangs. Oracle: nothing happens while nobody needs
// it; then another process has its slot, and no other slot was touched.
TEST_F(SupervisorTest, StoppedWorkerIsReplacedOnceSomebodyNeedsIt) {
    config_.stop_timeout_ms = 300;
    schedule::HeartbeatView idle;
    idle.pid = 1;
    idle.state = schedule::WorkerState::kIdle;
    heartbeats_[{control::FFN, 0}] = idle;
    start();
    ASSERT_TRUE(run_until(loop_, [&] { return program_.is_ready; }));
    const uint32_t pid = worker("ffn", 0).pid();
    ::kill(static_cast<pid_t>(pid), SIGSTOP);
    ASSERT_TRUE(wait_for_state("ffn", 0, "stopped"));
    EXPECT_FALSE(run_for(loop_, 1500, [&] { return worker("ffn", 0).pid() != pid; }));
    heartbeats_.erase({control::FFN, 0});
    ASSERT_TRUE(run_until(loop_, [&] {
        return worker("ffn", 0).pid() != pid && worker("ffn", 0).state() == "ready";
    }));
    EXPECT_EQ(worker("ffn", 0).num_restarts(), 1U);
    EXPECT_EQ(worker("attention", 0).num_restarts(), 0U);
}

}  // namespace
}  // namespace afd::daemon
