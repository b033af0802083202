// SPDX-License-Identifier: Apache-2.0
//
// The old side of an upgrade, over the real gateway and doors. In the place of the new afdd: a
// shell that says what the test lets it. Upgrades from end to end: tests/faults/upgrade_test.cc.
#include "daemon/afdd/upgrader.h"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>

#include "tests/daemon/gateway/byte_tokenizer.h"
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
    handover::ToOld ready;
    ready.mutable_ready()->set_version("1");
    const auto upgrader = make_upgrader(to_say(ready) + "exec sleep 60");
    const Result<> begun = upgrader->begin();
    ASSERT_TRUE(begun.ok()) << begun.error().message;
    const std::string text = upgrader->text();
    const pid_t pid = std::atoi(text.c_str() + std::string("pid ").size());
    ASSERT_GT(pid, 0) << text;
    EXPECT_TRUE(run_until(loop_, [&] { return has_left_; }));
    EXPECT_EQ(gateway_->num_connections(), 0U) << "they were not handed over";
    ::kill(pid, SIGKILL);
}

}  // namespace
}  // namespace afd::daemon
