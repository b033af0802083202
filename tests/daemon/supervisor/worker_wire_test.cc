// SPDX-License-Identifier: Apache-2.0
//
// What one worker may do to the wire of its slot. Method: its end of the socket is the test's.
// Oracle: what the owner hears.
#include "daemon/supervisor/worker_wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "tests/daemon/loop_helper.h"

namespace afd::daemon {
namespace {

class WorkerWireTest : public ::testing::Test {
  protected:
    WorkerWireTest() {
        std::array<int, 2> ends{};
        EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
        worker_.reset(ends[1]);
        wire_ = std::make_unique<WorkerWire>(
            loop_,
            "ffn worker 0",
            ControlChannel(UniqueFd(ends[0])),
            WorkerWire::Owner{
                .on_message = [this](const auto& /*message*/) { ++num_messages_; },
                .on_fault = [this](const std::string& why) { faults_.push_back(why); },
                .on_closed = [this] { is_closed_ = true; }});
    }

    // More than the socket holds: whatever follows waits.
    void fill() {
        control::SupervisorMessage message;
        message.mutable_refused()->set_message(std::string(size_t{4} << 20, 'x'));
        wire_->send(message);
    }

    EventLoop loop_;
    UniqueFd worker_;
    std::unique_ptr<WorkerWire> wire_;
    int num_messages_ = 0;
    std::vector<std::string> faults_;
    bool is_closed_ = false;
};

TEST_F(WorkerWireTest, WhoReadsNoAnswerToWhatItAsksIsAtFaultOnce) {
    fill();
    control::SupervisorMessage answer;
    answer.mutable_void_answer()->set_rank(1);
    for (uint32_t i = 0; i < WorkerWire::kUnreadAnswersMax; ++i) wire_->answer(answer);
    EXPECT_TRUE(faults_.empty());
    wire_->answer(answer);
    wire_->answer(answer);
    ASSERT_EQ(faults_.size(), 1U);
    EXPECT_EQ(faults_[0], "it reads none of 4096 answers to what it asked");
}

TEST_F(WorkerWireTest, WhoReadsNoDescriptorsGetsNoFurtherOnes) {
    fill();
    const control::SupervisorMessage message;
    const auto send_one = [&] {
        std::vector<UniqueFd> fds;
        fds.emplace_back(::eventfd(0, EFD_CLOEXEC));
        return wire_->send(message, std::move(fds));
    };
    for (size_t i = 0; i < WorkerWire::kUnreadFdsMax; ++i) ASSERT_TRUE(send_one().ok()) << i;
    const Result<> refused = send_one();
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, Code::kResourceExhausted);
    EXPECT_THAT(refused.error().message,
                ::testing::HasSubstr("ffn worker 0 does not read what it is sent"));
    EXPECT_TRUE(faults_.empty());
}

TEST_F(WorkerWireTest, AClosedEndIsNoFault) {
    worker_.reset();
    EXPECT_TRUE(run_until(loop_, [&] { return is_closed_; }));
    EXPECT_TRUE(faults_.empty());
}

TEST_F(WorkerWireTest, BadBytesAreAFault) {
    const std::string bad(8, '\xff');
    ASSERT_EQ(::write(worker_.get(), bad.data(), bad.size()), 8);
    ASSERT_TRUE(run_until(loop_, [&] { return !faults_.empty(); }));
    EXPECT_THAT(faults_[0], ::testing::StartsWith("it sent bad bytes: "));
    EXPECT_EQ(num_messages_, 0);
    EXPECT_FALSE(is_closed_);
}

}  // namespace
}  // namespace afd::daemon
