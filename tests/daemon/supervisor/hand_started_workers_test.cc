// SPDX-License-Identifier: Apache-2.0
//
// The supervisor with workers that somebody else starts (spawn = false).
#include <sys/wait.h>

#include <csignal>

#include "daemon/control/worker_control.h"
#include "tests/daemon/supervisor/supervisor_fixture.h"

namespace afd::daemon {
namespace {

using testing::HasSubstr;

class HandStartedWorkersTest : public SupervisorTest {
  protected:
    HandStartedWorkersTest() {
        config_.spawn = false;
        config_.attention_workers = 1;
    }

    pid_t run_worker(const std::string& program) const {
        const pid_t pid = ::fork();
        if (pid == 0) {
            const std::string path = AFD_FAKE_WORKERS "/" + program;
            const std::string socket = directory_.path("control.sock");
            ::execl(path.c_str(),
                    path.c_str(),
                    "--control-socket",
                    socket.c_str(),
                    "--log-level",
                    "off",
                    static_cast<char*>(nullptr));
            ::_exit(127);
        }
        return pid;
    }
};

// Goal: an orderly stop is orderly for workers of other parents too. Oracle: their exit status.
TEST_F(HandStartedWorkersTest, ExitWithZeroWhenAfddStops) {
    for (int repetition = 0; repetition < 10; ++repetition) {
        start();
        const pid_t attention = run_worker("afd-attention-worker");
        const pid_t ffn = run_worker("afd-ffn-worker");
        ASSERT_TRUE(run_until(loop_, [&] { return program_.is_ready; }));
        program_.is_all_gone = false;
        supervisor_->shut_down(20000);
        ASSERT_TRUE(run_until(loop_, [&] { return program_.is_all_gone; }));
        for (const pid_t pid : {attention, ffn}) {
            int status = 0;
            ASSERT_EQ(::waitpid(pid, &status, 0), pid);
            EXPECT_TRUE(WIFEXITED(status)) << "killed by signal " << WTERMSIG(status);
            EXPECT_EQ(WEXITSTATUS(status), 0);
        }
        supervisor_.reset();
        door_.reset();
        gateway_.reset();
        program_.is_ready = false;
    }
}

// Goal: a worker cannot run while its run_flag is 0, however it was started. Method: workers end by
// their flags; then a process asks for such a slot, and again when the flag is set. Oracle: what it
// is told, and the slot's state.
TEST_F(HandStartedWorkersTest, AreRefusedWhileTheirRunFlagIsZero) {
    start();
    const pid_t attention = run_worker("afd-attention-worker");
    const pid_t ffn = run_worker("afd-ffn-worker");
    ASSERT_TRUE(run_until(loop_, [&] { return program_.is_ready; }));
    set_run_flags(false);
    ASSERT_TRUE(wait_for_state("attention", 0, "halted"));
    ASSERT_TRUE(wait_for_state("ffn", 0, "halted"));
    for (const pid_t pid : {attention, ffn}) ASSERT_EQ(::waitpid(pid, nullptr, 0), pid);
    EXPECT_EQ(answer_to_hello(control::FFN).refused().message(),
              "run_flag of ffn0 is 0; set it with afdctl context --worker ffn0 --set-run-flag 1");
    EXPECT_THAT(answer_to_hello(control::ATTENTION).refused().message(),
                HasSubstr("run_flag of attention0 is 0"));
    EXPECT_EQ(worker("ffn", 0).state(), "halted");
    set_run_flags(true);
    ASSERT_TRUE(wait_for_state("ffn", 0, "dead"));
    const pid_t successor = run_worker("afd-ffn-worker");
    EXPECT_TRUE(wait_for_state("ffn", 0, "ready"));
    supervisor_.reset();
    gateway_.reset();
    ASSERT_EQ(::waitpid(successor, nullptr, 0), successor);
}

// Goal: nobody is told that afdd tries again what only a person can start. Method: the experts'
// worker is lost, and its successor cannot start; then one that can is started. Oracle: the reason.
TEST_F(HandStartedWorkersTest, ThatCannotStartAreToBeStartedByHand) {
    start();
    const pid_t attention = run_worker("afd-attention-worker");
    const pid_t lost = run_worker("afd-ffn-worker");
    ASSERT_TRUE(run_until(loop_, [&] { return program_.is_ready; }));
    ::kill(lost, SIGKILL);
    ASSERT_EQ(::waitpid(lost, nullptr, 0), lost);
    ASSERT_TRUE(wait_for_state("ffn", 0, "dead"));
    pid_t failing = 0;
    {
        const ScopedVariable cannot_start("AFD_FAKE_FAIL", "tensor x is missing");
        failing = run_worker("afd-ffn-worker");
    }
    ASSERT_TRUE(run_until(loop_, [&] { return status().state() == "failed"; }));
    ASSERT_EQ(::waitpid(failing, nullptr, 0), failing);
    EXPECT_THAT(status().reason(),
                HasSubstr("tensor x is missing; start it again by hand (spawn = false)"));
    const pid_t successor = run_worker("afd-ffn-worker");
    EXPECT_TRUE(run_until(loop_, [&] { return status().state() == "ready"; }));
    supervisor_.reset();
    gateway_.reset();
    for (const pid_t pid : {attention, successor}) ASSERT_EQ(::waitpid(pid, nullptr, 0), pid);
}

TEST_F(HandStartedWorkersTest, AreServedAndEndWithAfdd) {
    start();
    const pid_t attention = run_worker("afd-attention-worker");
    const pid_t ffn = run_worker("afd-ffn-worker");
    ASSERT_TRUE(run_until(loop_, [&] { return program_.is_ready; }));
    EXPECT_EQ(worker("attention", 0).pid(), static_cast<uint32_t>(attention));
    // Killed and reaped by its parent, so its slot is free: nobody starts another by itself.
    ::kill(attention, SIGKILL);
    ASSERT_EQ(::waitpid(attention, nullptr, 0), attention);
    EXPECT_TRUE(wait_for_state("attention", 0, "dead"));
    const pid_t successor = run_worker("afd-attention-worker");
    EXPECT_TRUE(wait_for_state("attention", 0, "ready"));
    // The end of afdd without a word.
    supervisor_.reset();
    gateway_.reset();
    for (const pid_t pid : {ffn, successor}) {
        int status = 0;
        ASSERT_EQ(::waitpid(pid, &status, 0), pid);
        EXPECT_TRUE(WIFEXITED(status));
        EXPECT_EQ(WEXITSTATUS(status), kExitAfddGone);
    }
}

}  // namespace
}  // namespace afd::daemon
