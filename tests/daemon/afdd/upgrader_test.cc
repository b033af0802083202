// SPDX-License-Identifier: Apache-2.0
//
// The old side of an upgrade, over the real gateway and doors. In the place of the new afdd: a
// shell that says what the test lets it. Upgrades from end to end: tests/faults/upgrade_test.cc.
#include "daemon/afdd/upgrader.h"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "daemon/loop/child_process.h"
#include "tests/daemon/gateway/byte_tokenizer.h"
#include "tests/daemon/gateway/memory_session.h"
#include "tests/daemon/gateway/scripted_instance.h"
#include "tests/daemon/gateway/test_client.h"
#include "tests/daemon/loop_helper.h"
#include "tests/temporary_directory.h"

namespace afd::daemon {
namespace {

class UpgraderTest : public testing::Test {
  protected:
    UpgraderTest() : tokenizer_(make_byte_tokenizer()), setup_(config_) {
        ::setenv("XDG_RUNTIME_DIR", directory_.path().c_str(), 1);
        config_.instance = fmt::format("upgrader_{}", ::getpid());
        config_.attention_workers = 1;
        config_.max_sequences = 8;
        config_.connections_max = 100;
        config_.input_buffer_kib = 65'536;
        config_.input_timeout_ms = 60'000;
        config_.output_buffer_kib = 64;
        config_.start_timeout_ms = 60'000;
        config_.drain_timeout_ms = 200;
        ServedModel model;
        model.vocab_size = kByteVocabulary;
        model.context_length = 4096;
        model.tokenizer = &tokenizer_;
        gateway_ = std::make_unique<Gateway>(
            loop_, config_, model, std::vector<TraceSource>(), instance_, instance_);
        const Result<> taken = setup_.take_instance();
        EXPECT_TRUE(taken.ok()) << taken.error().message;
        auto doors = Doors::open({.loop = &loop_,
                                  .config = &config_,
                                  .setup = &setup_,
                                  .texts = nullptr,
                                  .gateway = gateway_.get(),
                                  .predecessor = nullptr});
        EXPECT_TRUE(doors.ok()) << doors.error().message;
        doors_ = std::move(doors).value();
    }
    ~UpgraderTest() override { ::unsetenv("XDG_RUNTIME_DIR"); }

    // Commands of a shell that say this to the old afdd.
    static std::string to_say(const handover::ToOld& message) {
        std::string frame;
        append_frame(message, frame);
        std::string command = "printf '";
        for (const char byte : frame) {
            command += fmt::format("\\{:03o}", static_cast<unsigned char>(byte));
        }
        return command + fmt::format("' >&${}; ", Successor::kVariable);
    }

    static std::string say_ready() {
        handover::ToOld ready;
        ready.mutable_ready()->set_version("1");
        return to_say(ready);
    }

    std::unique_ptr<Upgrader> make_upgrader(const std::string& commands) {
        return std::make_unique<Upgrader>(
            loop_,
            Upgrader::Surroundings{.command_line = {"/bin/sh", "-c", commands},
                                   .config = &config_,
                                   .life = &life_,
                                   .setup = &setup_,
                                   .gateway = gateway_.get(),
                                   .doors = &doors_,
                                   .check_possible = [] { return Result<>(); },
                                   .on_ended = [] {},
                                   .on_left = [this] { has_left_ = true; }});
    }

    // Of the new one.
    static pid_t pid_of(const Upgrader& upgrader) {
        const std::string text = upgrader.text();
        const pid_t pid = std::atoi(text.c_str() + std::string("pid ").size());
        EXPECT_GT(pid, 0) << text;
        return pid;
    }
    // It has ended, and this process does not know.
    static void wait_for_end_of(pid_t pid) {
        siginfo_t info{};
        EXPECT_EQ(::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT), 0);
    }
    // Who asks for the upgrade. `begin`: whatever the test does before it waits.
    void expect_refused(Upgrader& upgrader,
                        const std::function<void()>& begin,
                        const std::string& why) {
        MemorySession& client = MemorySession::open(*gateway_, "test");
        client::Request request;
        request.set_request_id(1);
        request.mutable_upgrade();
        client.ask(request);
        const Result<> begun = upgrader.begin();
        ASSERT_TRUE(begun.ok()) << begun.error().message;
        begin();
        ASSERT_TRUE(run_until(loop_, [&] { return client.last(1) != nullptr; }));
        EXPECT_EQ(client.last(1)->error().message(),
                  "the new afdd cannot serve: " + why + "; this one serves on")
            << client.last(1)->DebugString();
    }

    const test::TemporaryDirectory directory_;
    Config config_;
    model::Tokenizer tokenizer_;
    EventLoop loop_;
    ScriptedInstance instance_;
    const ServiceNotifier notifier_;
    ServiceLife life_{loop_, notifier_, true};
    InstanceSetup setup_;
    std::unique_ptr<Gateway> gateway_;
    std::unique_ptr<Doors> doors_;
    bool has_left_ = false;
};

// Goal: a new afdd that does not take what it is handed does not keep the old one for ever. Method:
// it says that it is ready and reads nothing; the clients have sent more than the socket between
// the two takes. Oracle: the old one leaves, drain_timeout_ms after nothing runs any more.
TEST_F(UpgraderTest, ANewOneThatTakesNothingIsNotWaitedForForEver) {
    std::vector<std::unique_ptr<TestClient>> clients;
    // Of a frame of 1 MiB, whose rest never comes.
    const std::string half = std::string("\0\0\x10\0", 4) + std::string(60'000, 'x');
    for (int i = 0; i < 20; ++i) {
        clients.push_back(std::make_unique<TestClient>(loop_, *gateway_));
        clients.back()->send_bytes(half);
    }
    run_for(loop_, 20, [] { return false; });
    const auto upgrader = make_upgrader(say_ready() + "exec sleep 60");
    const Result<> begun = upgrader->begin();
    ASSERT_TRUE(begun.ok()) << begun.error().message;
    const pid_t pid = pid_of(*upgrader);
    EXPECT_TRUE(run_until(loop_, [&] { return has_left_; }));
    EXPECT_EQ(gateway_->num_connections(), 0U) << "they were not handed over";
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
}

// Goal: whoever was ready and has ended has not taken the place. Method: it says that it is ready
// and ends before this side reads that. Oracle: the answer to who has asked.
TEST_F(UpgraderTest, ANewOneThatIsReadyAndEndsIsNoUpgrade) {
    const auto upgrader = make_upgrader(say_ready());
    expect_refused(
        *upgrader,
        [&] { wait_for_end_of(pid_of(*upgrader)); },
        "it ended (exited with status 0); the log may have the reason");
    EXPECT_EQ(upgrader->text(), "");
}

// The same where the end of its process is noticed first. Method: another child has ended, so in
// its next turn the loop looks which have; in that turn, before it looks, the new one does, too.
TEST_F(UpgraderTest, TheEndOfANewOneIsKnownBeforeWhatItSaid) {
    const std::string file = directory_.path("go");
    const auto upgrader =
        make_upgrader(fmt::format("while [ ! -e {} ]; do sleep 0.01; done; {}", file, say_ready()));
    const UniqueFd event(::eventfd(1, EFD_CLOEXEC));
    FdWatcher watcher(loop_, event.get(), [&](int) {
        watcher.watch(0);
        std::ofstream{file};
        wait_for_end_of(pid_of(*upgrader));
    });
    std::unique_ptr<ChildProcess> other;
    expect_refused(
        *upgrader,
        [&] {
            watcher.watch(UV_READABLE);
            auto started = ChildProcess::start(
                loop_, {.executable = "true", .arguments = {}}, [](const ProcessEnd&) {});
            ASSERT_TRUE(started.ok()) << started.error().message;
            other = std::move(started).value();
            wait_for_end_of(other->pid());
        },
        "it ended (exited with status 0); the log may have the reason");
}

// Goal: one that has closed its connection is not blamed for its silence. Method: it goes on.
TEST_F(UpgraderTest, ANewOneThatClosesItsConnectionIsEndedWithThatReason) {
    const auto upgrader =
        make_upgrader(fmt::format("eval \"exec ${}>&-\"; exec sleep 60", Successor::kVariable));
    expect_refused(
        *upgrader, [] {}, "it closed its connection to this afdd");
}

struct NobodyListens final : SuccessorListener {
    void on_progress(const std::string& /*text*/) override {}
    void on_ready(const handover::Ready& /*ready*/) override {}
    void on_gone(const std::string& /*why*/) override {}
};

TEST(Successor, IsNotStartedWithoutADescriptorThatItIsToHave) {
    EventLoop loop;
    NobodyListens listener;
    Successor::Start start;
    start.command_line = {"/bin/sh", "-c", "exit 0"};
    start.fds = {-1};
    const auto started = Successor::start(loop, std::move(start), listener);
    ASSERT_FALSE(started.ok());
    EXPECT_EQ(started.error().message,
              "cannot copy descriptor -1 for the new afdd: Bad file descriptor");
}

}  // namespace
}  // namespace afd::daemon
