// SPDX-License-Identifier: Apache-2.0
//
// Two supervisors of one instance at one door, as a resize has them.

#include <csignal>

#include "tests/daemon/supervisor/supervisor_fixture.h"

namespace afd::daemon {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

// Notes what it hears, as the resizer does while the second one starts.
struct Newcomers final : AttentionListener, InstanceListener {
    void on_attention_ready(uint32_t, uint64_t) override { ++num_ready; }
    void on_attention_gone(uint32_t, const WorkerEnd&) override { ++num_gone; }
    void on_events(uint32_t, const control::Events&) override {}
    void on_attention_wait(uint32_t, bool) override {}
    uint32_t num_sequences(uint32_t) const override { return 0; }
    void on_all_ready() override { is_ready = true; }
    void on_given_up(const std::string& why) override { given_up = why; }
    void on_service(const ServiceState&) override {}
    void on_all_gone() override { is_all_gone = true; }

    int num_ready = 0;
    int num_gone = 0;
    bool is_ready = false;
    bool is_all_gone = false;
    std::string given_up;
};

class TwoSupervisorsTest : public SupervisorTest {
  protected:
    // Of three attention workers and two FFN workers.
    std::unique_ptr<Supervisor> make_second(bool has_predecessors = false) {
        Config config = config_;
        config.attention_workers = 3;
        config.ffn_workers = 2;
        Supervisor::Plan plan;
        plan.config = config;
        plan.cpus = plan_cpus(config, {0, 1}).value();
        plan.control_socket = directory_.path("control.sock");
        plan.worker_directory = worker_directory_;
        plan.has_predecessors = has_predecessors;
        plan.welcome.set_kv_tokens(2048);
        plan.heartbeat = [this](control::Role, uint32_t) { return next_beat(); };
        plan.fill_metrics = [](control::Role, uint32_t, client::Worker&) {};
        auto made = Supervisor::create(loop_, *door_, std::move(plan));
        EXPECT_TRUE(made.ok());
        return std::move(made).value();
    }

    std::vector<uint32_t> pids_of(const Supervisor& supervisor) const {
        client::Status status;
        supervisor.fill_status(status);
        std::vector<uint32_t> pids;
        for (const client::Worker& worker : status.workers()) pids.push_back(worker.pid());
        return pids;
    }

    void end(Supervisor& supervisor, const bool& is_all_gone) {
        supervisor.shut_down(2000);
        ASSERT_TRUE(run_until(loop_, [&] { return is_all_gone; }));
    }

    std::string worker_directory_ = AFD_FAKE_WORKERS;
    Newcomers newcomers_;
};

// Goal: workers of both find their slots at one door, the gateway hears of the second only from the
// handover on, and counts of processes go on. Oracle: who was told what; pids.
TEST_F(TwoSupervisorsTest, TheSecondStartsBesideTheFirstAndTakesOver) {
    start();
    ASSERT_TRUE(run_until(loop_, [&] { return program_.is_ready; }));
    const auto second = make_second();
    second->start(newcomers_, newcomers_);
    ASSERT_TRUE(run_until(loop_, [&] { return newcomers_.is_ready; }));
    EXPECT_TRUE(second->is_all_ready());
    EXPECT_EQ(newcomers_.num_ready, 3);
    for (const uint32_t pid : pids_of(*second)) {
        EXPECT_TRUE(second->has_process(static_cast<int>(pid)));
        EXPECT_FALSE(supervisor_->has_process(static_cast<int>(pid)));
    }
    // A stranger hears from the first why it gets no slot.
    EXPECT_THAT(
        answer_to_hello(control::FFN).refused().message(),
        HasSubstr("ffn worker 0 belongs to pid " + std::to_string(pids_of(*supervisor_).back())));

    gateway_->stand_still();
    program_.is_all_gone = false;
    end(*supervisor_, program_.is_all_gone);
    EXPECT_FALSE(supervisor_->has_processes());
    gateway_->go_on(3, {});
    second->continue_counts(*supervisor_);
    second->hand_over(*gateway_, program_);
    client::Status status;
    second->fill_status(status);
    EXPECT_EQ(status.workers(0).num_restarts(), 1u) << "attention worker 0 had one before";
    EXPECT_EQ(status.workers(2).num_restarts(), 0u) << "attention worker 2 is new";
    // The gateway knows of three: the third may die.
    ::kill(static_cast<pid_t>(pids_of(*second)[2]), SIGKILL);
    ASSERT_TRUE(run_until(loop_, [&] {
        client::Status now;
        second->fill_status(now);
        return now.workers(2).num_restarts() == 1 && now.workers(2).state() == "ready";
    }));
    program_.is_all_gone = false;
    end(*second, program_.is_all_gone);
}

// Goal: the counter of restarts does not fall while the second has no process yet. Method: one of
// the first's workers was killed; the second's are not started, then cannot be. Oracle: by hand.
TEST_F(TwoSupervisorsTest, RestartsAreThoseOfTheFirstBeforeTheSecondHasAProcess) {
    start();
    ASSERT_TRUE(run_until(loop_, [&] { return program_.is_ready; }));
    ::kill(static_cast<pid_t>(worker("attention", 0).pid()), SIGKILL);
    ASSERT_TRUE(run_until(loop_, [&] {
        const client::Worker now = worker("attention", 0);
        return now.num_restarts() == 1 && now.state() == "ready";
    }));
    const test::TemporaryDirectory empty;
    worker_directory_ = empty.path("");
    auto second = make_second(true);
    second->continue_counts(*supervisor_);
    client::Status status;
    const auto expect_counts = [&] {
        status.Clear();
        second->fill_status(status);
        EXPECT_EQ(status.workers(0).num_restarts(), 1u) << "it was killed once";
        EXPECT_EQ(status.workers(1).num_restarts(), 0u);
        EXPECT_EQ(status.workers(2).num_restarts(), 0u) << "attention worker 2 is new";
    };
    expect_counts();
    second->start(newcomers_, newcomers_);
    ASSERT_TRUE(run_until(loop_, [&] {
        status.Clear();
        second->fill_status(status);
        return status.state() == "failed";
    }));
    expect_counts();
    end(*second, newcomers_.is_all_gone);
}

// Goal: what cannot start costs the first nothing. Oracle: its processes.
TEST_F(TwoSupervisorsTest, TheSecondCannotStartAndTheFirstServesOn) {
    start();
    ASSERT_TRUE(run_until(loop_, [&] { return program_.is_ready; }));
    const std::vector<uint32_t> before = pids_of(*supervisor_);
    const test::TemporaryDirectory empty;
    worker_directory_ = empty.path("");
    auto second = make_second();
    second->start(newcomers_, newcomers_);
    ASSERT_TRUE(run_until(loop_, [&] { return !newcomers_.given_up.empty(); }));
    EXPECT_THAT(newcomers_.given_up, HasSubstr("no such file"));
    end(*second, newcomers_.is_all_gone);
    second.reset();
    EXPECT_EQ(pids_of(*supervisor_), before);
    EXPECT_EQ(worker("ffn", 0).state(), "ready");
}

// Goal: workers that follow others on the same segments are tried for ever, as those are that have
// served. Oracle: nobody gives up, though no program is there.
TEST_F(TwoSupervisorsTest, SuccessorsOfWorkersThatServedAreNotGivenUp) {
    start();
    ASSERT_TRUE(run_until(loop_, [&] { return program_.is_ready; }));
    const test::TemporaryDirectory empty;
    worker_directory_ = empty.path("");
    auto second = make_second(true);
    EXPECT_TRUE(second->is_all_ready());
    second->start(newcomers_, newcomers_);
    client::Status status;
    ASSERT_TRUE(run_until(loop_, [&] {
        status.Clear();
        second->fill_status(status);
        return status.state() == "failed";
    }));
    EXPECT_THAT(status.reason(), HasSubstr("no such file"));
    EXPECT_THAT(newcomers_.given_up, IsEmpty());
    end(*second, newcomers_.is_all_gone);
}

}  // namespace
}  // namespace afd::daemon
