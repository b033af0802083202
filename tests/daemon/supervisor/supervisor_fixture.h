// SPDX-License-Identifier: Apache-2.0
#pragma once

// SupervisorTest: a supervisor and a gateway on this process's loop, over real processes: the fake
// worker under the names of both worker programs. The test is what afdd is to them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/gateway/gateway.h"
#include "daemon/program/logging.h"
#include "daemon/supervisor/supervisor.h"
#include "schedule/context/context_words.h"
#include "tests/daemon/gateway/byte_tokenizer.h"
#include "tests/daemon/loop_helper.h"
#include "tests/daemon/scoped_variable.h"
#include "tests/temporary_directory.h"

namespace afd::daemon {

// In what was written to the log.
inline size_t num_lines_with(const std::string& what, const std::string& lines) {
    size_t count = 0;
    for (size_t at = 0; (at = lines.find(what, at)) != std::string::npos; ++at) ++count;
    return count;
}

// What afdd is to its supervisor and its gateway.
struct Program final : ServedInstance, InstanceListener {
    void fill_status(client::Status& /*status*/) const override {}
    std::string metrics_text(const client::Status&,
                             const RequestMetrics&,
                             const HopTimes&) const override {
        return "";
    }
    Result<> answer_context(const client::GetContext&, client::Context&) override { return {}; }
    Result<> on_resize_asked(const client::Resize&) override { return {}; }
    Result<> on_upgrade_asked() override { return {}; }
    void on_departed() override {}
    bool has_predecessor() const override { return false; }
    void on_stop_asked() override {}
    void on_drained() override {}
    void on_all_ready() override { is_ready = true; }
    void on_given_up(const std::string& why) override { given_up = why; }
    void on_service(const ServiceState& state) override { gateway->set_service(state); }
    void on_all_gone() override { is_all_gone = true; }

    bool is_ready = false;
    bool is_all_gone = false;
    std::string given_up;
    Gateway* gateway = nullptr;
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
        config_.connections_max = 100;
        config_.connection_requests_max = 100;
        config_.output_buffer_kib = 1024;
        config_.restart_first_ms = 10;
        config_.restart_max_ms = 50;
        config_.restart_reset_ms = 10000;
        config_.start_attempts = 3;
        config_.round_timeout_ms = 60'000;
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

    // The instance makes memory of two-phase rounds with these, which outlive it.
    void acquire_from(TwoPhaseSegments& segments) {
        acquire_segments_ = [&](uint32_t rank, const control::SegmentRequest& request) {
            return segments.acquire(rank,
                                    request.session(),
                                    request.round(),
                                    {request.receive_bytes(), request.return_bytes()});
        };
    }

    void start() {
        Supervisor::Plan plan;
        plan.config = config_;
        plan.cpus = plan_cpus(config_, {0, 1}).value();
        plan.control_socket = directory_.path("control.sock");
        plan.worker_directory = worker_directory_;
        plan.load_ms = load_ms_;
        plan.welcome.set_instance("test");
        plan.welcome.set_kv_tokens(config_.kv_tokens);
        plan.welcome.set_max_sequences(8);
        plan.welcome.mutable_geometry()->set_num_micro_batches(2);
        if (is_over_ucx_) plan.welcome.mutable_ucx();
        plan.heartbeat = [this](control::Role role, uint32_t index) {
            const auto found = heartbeats_.find({role, index});
            return found == heartbeats_.end() ? next_beat() : found->second;
        };
        plan.show_run_flag = [this](control::Role, uint32_t, bool runs) {
            words_.set_run_flag(runs);
        };
        plan.can_do_without = can_do_without_;
        plan.host_of = host_of_;
        plan.find_host = find_host_;
        plan.round_memory.acquire = acquire_segments_;
        plan.fill_metrics = [](control::Role, uint32_t, client::Worker&) {};
        auto door = WorkerDoor::open(loop_, plan.control_socket);
        ASSERT_TRUE(door.ok()) << door.error().message;
        door_ = std::move(door).value();
        auto supervisor = Supervisor::create(loop_, *door_, std::move(plan));
        ASSERT_TRUE(supervisor.ok()) << supervisor.error().message;
        supervisor_ = std::move(supervisor).value();

        ServedModel model;
        model.vocab_size = kByteVocabulary;
        model.context_length = 4096;
        model.tokenizer = &tokenizer_;
        gateway_ = std::make_unique<Gateway>(
            loop_, config_, model, std::vector<TraceSource>(), *supervisor_, program_);
        program_.gateway = gateway_.get();
        supervisor_->start(*gateway_, program_);
    }

    // Of all workers, as clients ask for it.
    void set_run_flags(bool runs) {
        for (uint32_t i = 0; i < config_.attention_workers; ++i) {
            supervisor_->set_run_flag(control::ATTENTION, i, runs);
        }
        for (uint32_t i = 0; i < config_.ffn_workers; ++i) {
            supervisor_->set_run_flag(control::FFN, i, runs);
        }
    }

    // The workers of this role are of host b, which is there; their stand-ins are the fake worker.
    // Before start().
    void put_on_host_b(control::Role role) {
        for (const char* name : {"afd-ffn-worker", "afd-attention-worker"}) {
            std::filesystem::create_symlink(std::string(AFD_FAKE_WORKERS "/") + name,
                                            directory_.path(name));
        }
        const std::string worker = role == control::FFN ? "afd-ffn-worker" : "afd-attention-worker";
        // Without what only a stand-in is told.
        const std::string stand_in =
            directory_.write("afd-stand-in",
                             "#!/bin/sh\n"
                             "for word; do shift; case $word in\n"
                             "--role|--cluster-dir) skip=1 ;;\n"
                             "*) [ -n \"$skip\" ] || set -- \"$@\" \"$word\"\n"
                             "skip= ;;\n"
                             "esac; done\n"
                             "exec " AFD_FAKE_WORKERS "/" +
                                 worker + " \"$@\"\n");
        std::filesystem::permissions(stand_in, std::filesystem::perms::owner_all);
        worker_directory_ = directory_.path();
        host_of_ = [role](control::Role each, uint32_t) { return each == role ? "b" : ""; };
        find_host_ = [this](const std::string&) {
            return is_host_b_there_ ? std::optional(control::RemoteHost()) : std::nullopt;
        };
    }

    // Once all are ready, host b goes away with its FFN worker 0.
    void start_and_lose_host_b() {
        put_on_host_b(control::FFN);
        start();
        ASSERT_TRUE(run_until(loop_, [&] { return program_.is_ready; }));
        const auto pid = static_cast<pid_t>(worker("ffn", 0).pid());
        ASSERT_GT(pid, 0);
        is_host_b_there_ = false;
        ::kill(pid, SIGKILL);
    }
    void bring_host_b_back() {
        is_host_b_there_ = true;
        supervisor_->on_host_joined("b");
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

    client::Status status() const {
        client::Status status;
        supervisor_->fill_status(status);
        return status;
    }

    // Waits until a worker reports this.
    bool reports(const std::string& role, uint32_t index, const std::string& what) {
        return run_until(loop_, [&] {
            const std::string line = role + " worker " + std::to_string(index) + ": " + what;
            const auto all = waits();
            return std::find(all.begin(), all.end(), line) != all.end();
        });
    }
    std::vector<std::string> waits() const {
        client::Status status;
        supervisor_->fill_status(status);
        return {status.waits().begin(), status.waits().end()};
    }

    bool wait_for_state(const std::string& role, uint32_t index, const std::string& state) {
        return run_until(loop_, [&] { return worker(role, index).state() == state; });
    }

    UniqueFd connect() const {
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        directory_.path("control.sock").copy(address.sun_path, sizeof(address.sun_path) - 1);
        UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
        EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
        return fd;
    }

    // What this process hears when it asks for the first slot of that role.
    control::SupervisorMessage answer_to_hello(control::Role role,
                                               uint32_t version = kControlVersion) {
        ControlChannel stranger(connect());
        say_hello_as_stranger(stranger, role, version);
        return answer_on(stranger);
    }
    static void say_hello_as_stranger(ControlChannel& stranger,
                                      control::Role role,
                                      uint32_t version = kControlVersion) {
        control::WorkerMessage hello;
        hello.mutable_hello()->set_role(role);
        hello.mutable_hello()->set_pid(static_cast<uint32_t>(::getpid()));
        hello.mutable_hello()->set_version(version);
        stranger.queue(hello);
        EXPECT_TRUE(stranger.flush().ok());
    }
    // Empty: the connection ends without one.
    control::SupervisorMessage answer_on(ControlChannel& stranger) {
        control::SupervisorMessage answer;
        EXPECT_TRUE(run_until(loop_, [&] {
            const bool is_open = stranger.read().ok();
            return stranger.next(answer).value() || !is_open;
        }));
        return answer;
    }

    schedule::ScheduleContext context_{};  // Of all workers.
    const schedule::ContextWords words_{context_};
    test::TemporaryDirectory directory_;
    Config config_;
    uint64_t load_ms_ = 0;
    model::Tokenizer tokenizer_;
    EventLoop loop_;
    std::map<std::pair<control::Role, uint32_t>, schedule::HeartbeatView> heartbeats_;
    uint64_t progress_ = 0;
    // Of the plan; empty: an instance without two-phase rounds.
    std::function<Result<TwoPhaseSegments::Descriptors>(uint32_t rank,
                                                        const control::SegmentRequest&)>
        acquire_segments_;
    bool is_over_ucx_ = false;  // Of the plan, like the next four.
    CanDoWithout can_do_without_;
    std::string worker_directory_ = AFD_FAKE_WORKERS;
    std::function<std::string(control::Role, uint32_t)> host_of_;
    std::function<std::optional<control::RemoteHost>(const std::string&)> find_host_;
    bool is_host_b_there_ = true;
    Program program_;
    std::unique_ptr<WorkerDoor> door_;
    std::unique_ptr<Supervisor> supervisor_;
    std::unique_ptr<Gateway> gateway_;
};

}  // namespace afd::daemon
