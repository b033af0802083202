// SPDX-License-Identifier: Apache-2.0
//
// The supervisor with real processes: the fake worker under the names of both worker programs.
#include "daemon/supervisor/supervisor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <csignal>

#include "daemon/gateway/gateway.h"
#include "daemon/program/logging.h"
#include "daemon/worker/worker_control.h"
#include "schedule/context_words.h"
#include "tests/daemon/attention/fake_token.h"
#include "tests/daemon/gateway/byte_tokenizer.h"
#include "tests/daemon/gateway/test_client.h"
#include "tests/daemon/loop_helper.h"
#include "tests/temporary_directory.h"

namespace afd::daemon {
namespace {

using testing::HasSubstr;

// An environment variable for the workers that are started while it lives.
class ScopedVariable {
  public:
    ScopedVariable(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
    ~ScopedVariable() { ::unsetenv(name_); }
    ScopedVariable(const ScopedVariable&) = delete;
    ScopedVariable& operator=(const ScopedVariable&) = delete;

  private:
    const char* name_;
};

// What afdd is to its supervisor and its gateway.
struct Program final : GatewayHost, InstanceListener {
    void fill_status(client::Status& /*status*/) const override {}
    Result<> answer_context(const client::GetContext&, client::Context&) override { return {}; }
    void on_stop_asked() override {}
    void on_drained() override {}
    void on_all_ready() override { is_ready = true; }
    void on_given_up(const std::string& why) override { given_up = why; }
    void on_all_gone() override { is_all_gone = true; }

    bool is_ready = false;
    bool is_all_gone = false;
    std::string given_up;
};

class SupervisorTest : public testing::Test {
  protected:
    SupervisorTest() : tokenizer_(make_byte_tokenizer()) {
        set_up_logging("supervisor_test", "off", "text");
        config_.instance = "test";
        config_.attention_workers = 2;
        config_.ffn_workers = 1;
        config_.kv_tokens = 4096;
        config_.max_sequences = 8;
        config_.max_queue = 100;
        config_.output_buffer_kib = 1024;
        config_.restart_first_ms = 10;
        config_.restart_max_ms = 50;
        config_.restart_reset_ms = 10000;
        config_.start_attempts = 3;
        config_.log_level = "off";
        config_.log_format = "text";
        config_.pin = "none";
    }

    ~SupervisorTest() override {
        if (supervisor_ == nullptr) return;
        program_.is_all_gone = false;
        supervisor_->shut_down(2000);
        EXPECT_TRUE(run_until(loop_, [&] { return program_.is_all_gone; })) << "workers do not end";
    }

    void start() {
        words_.set_run_flag(true);
        Supervisor::Plan plan;
        plan.config = config_;
        plan.cpus = plan_cpus(config_, {0, 1}).value();
        plan.control_socket = directory_.path("control.sock");
        plan.worker_directory = AFD_FAKE_WORKERS;
        plan.welcome.set_instance("test");
        plan.welcome.set_kv_tokens(config_.kv_tokens);
        plan.welcome.set_max_sequences(8);
        plan.heartbeat = [this](control::Role role, uint32_t index) {
            const auto found = heartbeats_.find({role, index});
            return found == heartbeats_.end() ? next_beat() : found->second;
        };
        plan.run_flag = [this](control::Role, uint32_t) { return words_.run_flag(); };
        plan.fill_metrics = [](control::Role, uint32_t, client::Worker&) {};
        auto supervisor = Supervisor::create(loop_, std::move(plan));
        ASSERT_TRUE(supervisor.ok()) << supervisor.error().message;
        supervisor_ = std::move(supervisor).value();

        ServedModel model;
        model.vocab_size = kByteVocabulary;
        model.context_length = 4096;
        model.tokenizer = &tokenizer_;
        gateway_ = std::make_unique<Gateway>(
            loop_, config_, model, std::vector<TraceSource>(), *supervisor_, program_);
        supervisor_->start(*gateway_, program_);
    }

    // A heart that always beats.
    schedule::HeartbeatView next_beat() {
        schedule::HeartbeatView view;
        view.pid = 1;
        view.progress = ++progress_;
        view.state = schedule::WorkerState::kComputing;
        return view;
    }

    client::Worker worker(const std::string& role, uint32_t index) const {
        client::Status status;
        supervisor_->fill_status(status);
        for (const client::Worker& entry : status.workers()) {
            if (entry.role() == role && entry.index() == index) return entry;
        }
        return {};
    }

    bool wait_for_state(const std::string& role, uint32_t index, const std::string& state) {
        return run_until(loop_, [&] { return worker(role, index).state() == state; });
    }

    schedule::ScheduleContext context_{};  // Of all workers.
    const schedule::ContextWords words_{context_};
    test::TemporaryDirectory directory_;
    Config config_;
    model::Tokenizer tokenizer_;
    EventLoop loop_;
    std::map<std::pair<control::Role, uint32_t>, schedule::HeartbeatView> heartbeats_;
    uint64_t progress_ = 0;
    Program program_;
    std::unique_ptr<Supervisor> supervisor_;
    std::unique_ptr<Gateway> gateway_;
};

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
    constexpr uint32_t kTokens = 150;
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
    auto supervisor = Supervisor::create(loop, std::move(plan));
    ASSERT_TRUE(supervisor.ok());
    supervisor.value()->start(*gateway_, program_);
    ASSERT_TRUE(run_until(loop, [&] { return !program_.given_up.empty(); }));
    EXPECT_THAT(program_.given_up, HasSubstr("cannot start"));
    EXPECT_THAT(program_.given_up, HasSubstr("no such file"));
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

TEST_F(SupervisorTest, GarbageAndStrangersOnTheControlSocketHarmNobody) {
    start();
    ASSERT_TRUE(run_until(loop_, [&] { return program_.is_ready; }));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    directory_.path("control.sock").copy(address.sun_path, sizeof(address.sun_path) - 1);
    const auto connect = [&] {
        UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
        EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
        return fd;
    };
    const UniqueFd garbage = connect();
    ASSERT_EQ(::send(garbage.get(), "\xff\xff\xff\xffxx", 6, 0), 6);
    // A stranger asks for the slot of a living worker.
    ControlChannel stranger(connect());
    control::WorkerMessage hello;
    hello.mutable_hello()->set_role(control::FFN);
    hello.mutable_hello()->set_pid(static_cast<uint32_t>(::getpid()));
    hello.mutable_hello()->set_version(kControlVersion);
    stranger.queue(hello);
    ASSERT_TRUE(stranger.flush().ok());
    control::SupervisorMessage answer;
    ASSERT_TRUE(run_until(loop_, [&] {
        static_cast<void>(stranger.read().ok());
        return stranger.next(answer).value();
    }));
    EXPECT_THAT(answer.refused().message(), HasSubstr("ffn worker 0 belongs to pid"));
    EXPECT_EQ(worker("ffn", 0).state(), "ready");
}

// Goal: run_flag = 0 ends a worker as if it had been told to, and nobody starts it again before the
// flag is set. Method: a plain store into the word that the supervisor looks at. Oracle: the slots'
// states and pids; a killed worker is started again without a word.
TEST_F(SupervisorTest, RunFlagZeroEndsAWorkerUntilItIsSetAgain) {
    config_.attention_workers = 1;
    config_.restart_reset_ms = 1;
    start();
    ASSERT_TRUE(run_until(loop_, [&] { return program_.is_ready; }));
    const uint32_t first = worker("ffn", 0).pid();
    words_.set_run_flag(false);
    EXPECT_TRUE(wait_for_state("ffn", 0, "halted"));
    EXPECT_TRUE(wait_for_state("attention", 0, "halted"));
    // More than the longest back-off of a crash.
    EXPECT_FALSE(run_for(
        loop_, 4 * config_.restart_max_ms, [&] { return worker("ffn", 0).state() != "halted"; }));
    words_.set_run_flag(true);
    EXPECT_TRUE(wait_for_state("ffn", 0, "ready"));
    EXPECT_NE(worker("ffn", 0).pid(), first);
    EXPECT_TRUE(wait_for_state("attention", 0, "ready"));
    EXPECT_EQ(program_.given_up, "");
}

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
        gateway_.reset();
        program_.is_ready = false;
    }
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
