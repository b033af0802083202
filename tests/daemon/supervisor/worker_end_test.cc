// SPDX-License-Identifier: Apache-2.0
//
// Whose fault it was that an attention worker ended, as the gateway hears it.

#include <csignal>
#include <functional>
#include <vector>

#include "daemon/control/worker_control.h"
#include "daemon/supervisor/worker_process.h"
#include "tests/daemon/supervisor/supervisor_fixture.h"

namespace afd::daemon {
namespace {

using testing::HasSubstr;

struct NotingListener final : AttentionListener {
    void on_attention_ready(uint32_t, uint64_t) override {}
    void on_attention_gone(uint32_t, const WorkerEnd& end) override { ends.push_back(end); }
    void on_events(uint32_t, const control::Events&) override {}
    void on_attention_wait(uint32_t, bool) override {}
    uint32_t num_sequences(uint32_t) const override { return 0; }

    std::vector<WorkerEnd> ends;
};

// Outlives the supervisor of the fixture, which is another base behind it.
struct WithNotingListener {
    NotingListener listener_;
};

class WorkerEndTest : protected WithNotingListener, public SupervisorTest {
  protected:
    WorkerEndTest() {
        config_.attention_workers = 1;
        config_.restart_first_ms = config_.restart_max_ms = 1;
    }

    void start_and_listen() {
        start();
        ASSERT_TRUE(run_until(loop_, [&] { return program_.is_ready; }));
        supervisor_->hand_over(listener_, program_);
    }

    // What is heard when the worker ends by this; behind it its successor is ready.
    WorkerEnd end_by(const std::function<void()>& disturb) {
        const size_t num_before = listener_.ends.size();
        const uint32_t pid = worker("attention", 0).pid();
        disturb();
        EXPECT_TRUE(run_until(loop_, [&] {
            const client::Worker now = worker("attention", 0);
            return listener_.ends.size() > num_before && now.pid() != pid && now.state() == "ready";
        }));
        return listener_.ends.size() > num_before ? listener_.ends[num_before] : WorkerEnd();
    }
    WorkerEnd end_by_signal(int number) {
        return end_by([&] { ::kill(static_cast<pid_t>(worker("attention", 0).pid()), number); });
    }

    static schedule::HeartbeatView hung() {
        schedule::HeartbeatView view;
        view.pid = 1;
        view.progress = 42;
        view.state = schedule::WorkerState::kComputing;
        return view;
    }
};

TEST_F(WorkerEndTest, ACrashIsItsFaultAndASignalFromOutsideIsNot) {
    start_and_listen();
    for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) {
        EXPECT_TRUE(end_by_signal(number).is_fault) << number;
    }
    const WorkerEnd aborted = end_by_signal(SIGABRT);
    EXPECT_TRUE(aborted.is_fault);
    EXPECT_EQ(aborted.how, "attention worker 0 killed by signal 6 (Aborted)");
    for (const int number : {SIGKILL, SIGTERM, SIGINT, SIGHUP, SIGQUIT}) {
        EXPECT_FALSE(end_by_signal(number).is_fault) << number;
    }
}

TEST_F(WorkerEndTest, AHangIsItsFaultUnlessASignalHasStoppedIt) {
    config_.hang_timeout_ms = 600;
    config_.stop_timeout_ms = 0;
    start_and_listen();
    const WorkerEnd hang = end_by([&] {
        heartbeats_[{control::ATTENTION, 0}] = hung();
        ASSERT_TRUE(run_until(loop_, [&] { return listener_.ends.size() == 1; }));
        heartbeats_.erase({control::ATTENTION, 0});
    });
    EXPECT_TRUE(hang.is_fault);
    EXPECT_THAT(hang.how, HasSubstr("killed by signal 9 (Killed): no progress for"));
    const WorkerEnd stopped = end_by([&] {
        ::kill(static_cast<pid_t>(worker("attention", 0).pid()), SIGSTOP);
        ASSERT_TRUE(wait_for_state("attention", 0, "stopped"));
        heartbeats_[{control::ATTENTION, 0}] = hung();
        ASSERT_TRUE(run_until(loop_, [&] { return listener_.ends.size() == 2; }));
        heartbeats_.erase({control::ATTENTION, 0});
    });
    EXPECT_FALSE(stopped.is_fault);
    EXPECT_THAT(stopped.how, HasSubstr("it is stopped"));
}

// Its end comes with the same bytes again.
TEST_F(WorkerEndTest, WhoSendsNonsenseIsKilledForIt) {
    start_and_listen();
    std::optional<ScopedVariable> nonsense(std::in_place, "AFD_FAKE_NONSENSE", "1");
    const WorkerEnd end = end_by([&] {
        ::kill(static_cast<pid_t>(worker("attention", 0).pid()), SIGKILL);
        ASSERT_TRUE(run_until(loop_, [&] { return listener_.ends.size() >= 2; }));
        nonsense.reset();
    });
    EXPECT_FALSE(end.is_fault) << end.how;
    ASSERT_GE(listener_.ends.size(), 2U);
    EXPECT_TRUE(listener_.ends[1].is_fault) << listener_.ends[1].how;
    EXPECT_THAT(listener_.ends[1].how, HasSubstr("killed by signal 9"));
}

TEST(WorkerEnd, AnExitForWhatIsNoFaultOfTheWorkIsNoCrash) {
    for (const int status : {0, kExitAfddGone, kExitDamagedFile, kExitStuckUcx}) {
        EXPECT_FALSE(has_crashed({.is_known = true, .status = status, .signal = 0})) << status;
    }
    EXPECT_TRUE(has_crashed({.is_known = true, .status = 1, .signal = 0}));
    EXPECT_FALSE(has_crashed({.is_known = false, .status = 1, .signal = 0}));
}

// It has worked on nothing yet.
TEST_F(WorkerEndTest, ACrashBeforeItIsReadyIsNoFault) {
    start_and_listen();
    std::optional<ScopedVariable> crash;
    end_by([&] {
        crash.emplace("AFD_FAKE_CRASH", "1");
        ::kill(static_cast<pid_t>(worker("attention", 0).pid()), SIGKILL);
        ASSERT_TRUE(run_until(loop_, [&] { return listener_.ends.size() >= 3; }));
        crash.reset();
    });
    for (const WorkerEnd& end : listener_.ends) EXPECT_FALSE(end.is_fault) << end.how;
    EXPECT_THAT(listener_.ends[1].how, HasSubstr("killed by signal 6"));
}

// run_flag.
TEST_F(WorkerEndTest, AnEndThatWasAskedForIsNoFault) {
    start_and_listen();
    const WorkerEnd halted = end_by([&] {
        set_run_flags(false);
        ASSERT_TRUE(wait_for_state("attention", 0, "halted"));
        set_run_flags(true);
    });
    EXPECT_FALSE(halted.is_fault);
    EXPECT_THAT(halted.how, HasSubstr("exited with status 0"));
}

// How its worker ended it says itself.
TEST_F(WorkerEndTest, TheEndOfAStandInIsNoFaultOfItsWorker) {
    put_on_host_b(control::ATTENTION);
    start_and_listen();
    const WorkerEnd end = end_by_signal(SIGABRT);
    EXPECT_FALSE(end.is_fault);
    EXPECT_THAT(end.how, HasSubstr("killed by signal 6"));
}

// The stand-in's exit status tells nobody anything.
TEST_F(WorkerEndTest, OfAWorkerOnAnotherHostItsOwnWordsAreTold) {
    put_on_host_b(control::ATTENTION);
    start_and_listen();
    const ScopedVariable fail("AFD_FAKE_FAIL", "tensor x is missing");
    ::kill(static_cast<pid_t>(worker("attention", 0).pid()), SIGKILL);
    ASSERT_TRUE(run_until(loop_, [&] { return listener_.ends.size() >= 2; }));
    EXPECT_THAT(listener_.ends[1].how, HasSubstr("attention worker 0 ended: tensor x is missing"));
}

TEST(ProcessEnd, OfAKernelWithoutMemorySaysSo) {
    ProcessEnd end{.is_known = true, .status = 0, .signal = SIGKILL};
    EXPECT_EQ(end.text(), "killed by signal 9 (Killed)");
    end.is_out_of_memory = true;
    EXPECT_THAT(end.text(), HasSubstr("signal 9 (Killed): the kernel had no memory left for it"));
}

}  // namespace
}  // namespace afd::daemon
