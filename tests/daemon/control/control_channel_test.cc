// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/control_channel.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "daemon/control/event_batch.h"
#include "proto/control.pb.h"
#include "tests/daemon/control/scarce_kernel.h"

namespace afd::daemon {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class ControlChannelTest : public testing::Test {
  protected:
    ControlChannelTest() {
        std::array<int, 2> fds{};
        EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds.data()), 0);
        left_ = std::make_unique<ControlChannel>(UniqueFd(fds[0]));
        right_ = std::make_unique<ControlChannel>(UniqueFd(fds[1]));
    }

    // Moves everything from left to right.
    void transfer() {
        while (left_->wants_write()) {
            ASSERT_TRUE(left_->flush().ok());
            ASSERT_TRUE(right_->read().ok());
        }
    }

    void send_raw(const std::string& bytes) {
        ASSERT_EQ(::send(left_->fd(), bytes.data(), bytes.size(), 0),
                  static_cast<ssize_t>(bytes.size()));
    }

    std::unique_ptr<ControlChannel> left_;
    std::unique_ptr<ControlChannel> right_;
};

control::SupervisorMessage cancel_message(uint64_t sequence_id) {
    control::SupervisorMessage message;
    message.mutable_cancel()->set_sequence_id(sequence_id);
    return message;
}

// Goal: a peer that writes as fast as it is read cannot hold its reader. Oracle: a read with a
// limit leaves the rest in the socket, and the next one finds it.
TEST_F(ControlChannelTest, ReadWithALimitLeavesTheRestForTheNext) {
    control::SupervisorMessage message;
    message.mutable_refused()->set_message(std::string(100'000, 'x'));
    left_->queue(message);
    ASSERT_TRUE(left_->flush().ok());
    ASSERT_FALSE(left_->wants_write()) << "the socket takes less than this test needs";
    ASSERT_TRUE(right_->read(1).ok());
    EXPECT_FALSE(right_->next(message).value());
    ASSERT_TRUE(right_->read(1).ok());
    ASSERT_TRUE(right_->next(message).value());
    EXPECT_EQ(message.refused().message().size(), 100'000u);
}

TEST_F(ControlChannelTest, MessagesArriveWholeAndInOrder) {
    for (uint64_t id = 1; id <= 3; ++id) left_->queue(cancel_message(id));
    transfer();
    control::SupervisorMessage message;
    for (uint64_t id = 1; id <= 3; ++id) {
        ASSERT_TRUE(right_->next(message).value());
        EXPECT_EQ(message.cancel().sequence_id(), id);
    }
    EXPECT_FALSE(right_->next(message).value());
}

// Goal: the doorbells of the largest instance reach a worker, in order. Method: more descriptors
// than one sendmsg takes, of one eventfd each with its own count. Oracle: the counts.
TEST_F(ControlChannelTest, OverAThousandDescriptorsArriveInOrder) {
    constexpr size_t kCount = 1025;
    std::vector<UniqueFd> eventfds;
    std::vector<int> fds;
    for (unsigned i = 0; i < kCount; ++i) {
        eventfds.emplace_back(::eventfd(i + 1, EFD_CLOEXEC | EFD_NONBLOCK));
        if (!eventfds.back().valid()) break;  // A low limit of open files.
        fds.push_back(eventfds.back().get());
    }
    const size_t count = std::min(fds.size(), kCount) / 3;
    ASSERT_GE(count, 251U) << "the limit of open files hides what this test is about";
    fds.resize(count);
    control::SupervisorMessage message;
    message.mutable_welcome()->set_num_fds(static_cast<uint32_t>(count));
    left_->queue(message, fds);
    transfer();
    ASSERT_TRUE(right_->next(message).value());
    Result<std::vector<UniqueFd>> received = right_->take_fds(message.welcome().num_fds());
    ASSERT_TRUE(received.ok()) << received.error().message;
    for (size_t i = 0; i < count; ++i) {
        uint64_t value = 0;
        ASSERT_EQ(::read(received.value()[i].get(), &value, sizeof(value)), 8);
        EXPECT_EQ(value, i + 1);
        EXPECT_NE(::fcntl(received.value()[i].get(), F_GETFD) & FD_CLOEXEC, 0);
    }
    EXPECT_THAT(right_->take_fds(1).error().message, HasSubstr("but 0 came"));
}

// Goal: what the kernel has no room for just now is not lost, and not the peer's end. Method: sends
// that fail once with each of its errors. Oracle: the message and its descriptor, in whole and
// once.
TEST_F(ControlChannelTest, WhatTheKernelIsShortOfWaits) {
    for (const int error : {ENOBUFS, ENOMEM, ETOOMANYREFS}) {
        const std::vector<int> fds = {STDERR_FILENO};
        left_->queue(cancel_message(7), fds);
        ScarceKernel::fail_sends(1, error);
        ASSERT_TRUE(left_->flush().ok()) << error;
        EXPECT_TRUE(left_->is_short());
        EXPECT_TRUE(left_->wants_write());
        ASSERT_TRUE(left_->flush().ok());
        EXPECT_FALSE(left_->is_short());
        EXPECT_FALSE(left_->wants_write());
        ASSERT_TRUE(right_->read().ok());
        control::SupervisorMessage message;
        ASSERT_TRUE(right_->next(message).value());
        EXPECT_EQ(message.cancel().sequence_id(), 7);
        EXPECT_TRUE(right_->take_fds(1).ok());
        EXPECT_FALSE(right_->take_fds(1).ok());
    }
}

// Goal: a worker cannot fill afdd's table of descriptors. Oracle: the error, which ends the
// channel.
TEST_F(ControlChannelTest, DescriptorsThatNobodyExpectsAreDataLoss) {
    int sockets[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
    ControlChannel worker{UniqueFd(sockets[0])};
    ControlChannel afdd(UniqueFd(sockets[1]), 0);
    control::WorkerMessage message;
    message.mutable_wait()->set_text("x");
    worker.queue(message);
    ASSERT_TRUE(worker.flush().ok());
    EXPECT_TRUE(afdd.read().ok());
    const std::vector<int> fds = {STDERR_FILENO, STDERR_FILENO};
    worker.queue(message, fds);
    ASSERT_TRUE(worker.flush().ok());
    const Result<> read = afdd.read();
    ASSERT_FALSE(read.ok());
    EXPECT_EQ(read.error().code, Code::kDataLoss);
    EXPECT_EQ(read.error().message, "it sent 2 descriptors; 0 are taken");
}

// Goal: a peer that sends descriptors with each of many messages, as an afdd does that hands over
// its connections, is read as fast as they are claimed. Method: more of them in the socket than may
// be unclaimed. Oracle: each message has its own, and none is too many.
TEST_F(ControlChannelTest, DescriptorsThatAreClaimedAreNeverTooMany) {
    int sockets[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
    ControlChannel peer{UniqueFd(sockets[0])};
    ControlChannel channel(UniqueFd(sockets[1]), 300);
    const std::vector<int> fds(50, STDERR_FILENO);
    constexpr uint64_t kMessages = 10;
    for (uint64_t id = 0; id < kMessages; ++id) peer.queue(cancel_message(id), fds);
    ASSERT_TRUE(peer.flush().ok());
    ASSERT_FALSE(peer.wants_write()) << "the socket takes less than this test needs";
    control::SupervisorMessage message;
    for (uint64_t id = 0; id < kMessages;) {
        const Result<> read = channel.read();
        ASSERT_TRUE(read.ok()) << read.error().message;
        const uint64_t first = id;
        while (channel.next(message).value()) {
            EXPECT_EQ(message.cancel().sequence_id(), id++);
            EXPECT_TRUE(channel.take_fds(fds.size()).ok());
        }
        ASSERT_GT(id, first) << "there is more, and it is not read";
    }
}

TEST_F(ControlChannelTest, AClosedOneIsTheEndForItsPeer) {
    left_->queue(cancel_message(1));
    ASSERT_TRUE(left_->flush().ok());
    left_->queue(cancel_message(2));
    left_->close();
    EXPECT_FALSE(left_->wants_write());
    EXPECT_EQ(right_->read().error().code, Code::kUnavailable);
    control::SupervisorMessage message;
    EXPECT_TRUE(right_->next(message).value());
    EXPECT_FALSE(right_->next(message).value());
    EXPECT_EQ(left_->read().error().code, Code::kUnavailable);
}

TEST_F(ControlChannelTest, HalfAFrameWaitsForItsRest) {
    std::string bytes;
    append_frame(cancel_message(300), bytes);
    control::SupervisorMessage message;
    for (size_t i = 0; i + 1 < bytes.size(); ++i) {
        send_raw(bytes.substr(i, 1));
        ASSERT_TRUE(right_->read().ok());
        ASSERT_FALSE(right_->next(message).value());
    }
    send_raw(bytes.substr(bytes.size() - 1));
    ASSERT_TRUE(right_->read().ok());
    ASSERT_TRUE(right_->next(message).value());
    EXPECT_EQ(message.cancel().sequence_id(), 300);
}

TEST_F(ControlChannelTest, GarbageIsDataLoss) {
    send_raw("GET / HTTP/1.1\r\n");
    ASSERT_TRUE(right_->read().ok());
    control::SupervisorMessage message;
    EXPECT_EQ(right_->next(message).error().code, Code::kDataLoss);
}

TEST_F(ControlChannelTest, FrameThatIsNoMessageIsDataLoss) {
    send_raw(std::string("\x03\x00\x00\x00\xff\xff\xff", 7));
    ASSERT_TRUE(right_->read().ok());
    control::SupervisorMessage message;
    const Result<bool> next = right_->next(message);
    ASSERT_FALSE(next.ok());
    EXPECT_THAT(next.error().message, HasSubstr("afd.control.SupervisorMessage"));
}

TEST_F(ControlChannelTest, WhatCameBeforeTheEndIsStillDelivered) {
    left_->queue(cancel_message(5));
    ASSERT_TRUE(left_->flush().ok());
    left_.reset();
    EXPECT_EQ(right_->read().error().code, Code::kUnavailable);
    control::SupervisorMessage message;
    ASSERT_TRUE(right_->next(message).value());
    EXPECT_EQ(message.cancel().sequence_id(), 5);
    right_->queue(cancel_message(6));
    EXPECT_EQ(right_->flush().error().code, Code::kUnavailable);
}

TEST_F(ControlChannelTest, AFullSocketKeepsTheRestForLater) {
    control::SupervisorMessage message;
    message.mutable_refused()->set_message(std::string(1 << 20, 'x'));
    for (int i = 0; i < 4; ++i) left_->queue(message);
    ASSERT_TRUE(left_->flush().ok());
    EXPECT_TRUE(left_->wants_write());
    EXPECT_GT(left_->queued_bytes(), 0U);
    transfer();
    EXPECT_EQ(left_->queued_bytes(), 0U);
    int received = 0;
    while (right_->next(message).value()) ++received;
    EXPECT_EQ(received, 4);
}

WorkerEvent event_of(WorkerEvent::Kind kind, uint64_t sequence_id, uint32_t token, float logprob) {
    WorkerEvent event;
    event.kind = kind;
    event.sequence_id = sequence_id;
    event.token = token;
    event.logprob = logprob;
    return event;
}

TEST(EventBatch, JoinsConsecutivePromptLogprobsOfASequence) {
    using Kind = WorkerEvent::Kind;
    EventBatch batch;
    batch.add(event_of(Kind::kPromptLogprob, 1, 1, -1));
    batch.add(event_of(Kind::kPromptLogprob, 1, 2, -2));
    batch.add(event_of(Kind::kPromptLogprob, 2, 3, -3));
    batch.add(event_of(Kind::kPromptLogprob, 2, 7, -7));
    const auto& runs = batch.events().prompt_logprobs();
    ASSERT_EQ(runs.size(), 3);
    EXPECT_EQ(runs[0].first_position(), 1);
    EXPECT_THAT(runs[0].values(), ElementsAre(-1, -2));
    EXPECT_EQ(runs[1].first_position(), 3);
    EXPECT_EQ(runs[2].first_position(), 7);
}

TEST(EventBatch, KeepsTheMostLikelyTokensOfEachPromptLogprob) {
    EventBatch batch;
    for (const uint32_t position : {1U, 2U}) {
        WorkerEvent event = event_of(WorkerEvent::Kind::kPromptLogprob, 1, position, -1);
        const std::array<model::TokenLogprob, 2> top{{{10 * position, -1}, {position, -2}}};
        event.set_top(top);
        batch.add(event);
    }
    ASSERT_EQ(batch.events().prompt_logprobs_size(), 1);
    EXPECT_THAT(batch.events().prompt_logprobs(0).top_ids(), ElementsAre(10, 1, 20, 2));
    EXPECT_THAT(batch.events().prompt_logprobs(0).top_logprobs(), ElementsAre(-1, -2, -1, -2));
}

TEST_F(ControlChannelTest, EventsBecomeMessages) {
    using Kind = WorkerEvent::Kind;
    EventBatch batch;
    batch.add(event_of(Kind::kStarted, 4, 0, 0));
    batch.add(event_of(Kind::kToken, 4, 99, -0.25F));
    WorkerEvent end = event_of(Kind::kEnd, 4, 0, 0);
    end.code = Code::kDeadlineExceeded;
    end.set_text("round %d took too long", 17);
    batch.add(end);
    WorkerEvent wait = event_of(Kind::kWait, 0, 0, 0);
    std::fill(std::begin(wait.text), std::end(wait.text), 'w');
    batch.add(wait);
    WorkerEvent wait_for_rank = event_of(Kind::kWait, 0, 0, 0);
    wait_for_rank.set_wait("it waits", 3, "the peer is idle");
    batch.add(wait_for_rank);
    batch.queue_on(*left_);
    batch.queue_on(*left_);
    transfer();

    control::WorkerMessage message;
    ASSERT_TRUE(right_->next(message).value());
    EXPECT_EQ(message.events().started(0).sequence_id(), 4U);
    EXPECT_EQ(message.events().tokens(0).token(), 99);
    EXPECT_EQ(message.events().tokens(0).logprob(), -0.25F);
    EXPECT_EQ(message.events().ends(0).code(), 7);
    EXPECT_EQ(message.events().ends(0).message(), "round 17 took too long");
    ASSERT_TRUE(right_->next(message).value());
    EXPECT_EQ(message.wait().text(), std::string(sizeof(wait.text), 'w'));
    EXPECT_EQ(message.wait().peer(), "");
    ASSERT_TRUE(right_->next(message).value());
    EXPECT_EQ(message.wait().text(), "it waits");
    EXPECT_EQ(message.wait().peer(), "the peer is idle");
    EXPECT_EQ(message.wait().rank(), 3U);
    EXPECT_FALSE(right_->next(message).value());
}

}  // namespace
}  // namespace afd::daemon
