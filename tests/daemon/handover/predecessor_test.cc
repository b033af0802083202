// SPDX-License-Identifier: Apache-2.0
//
// The new end of a handover. Goal: what the old one hands over arrives, and if it cannot be read
// the old one knows. Method: its end of the socket is the test's. Oracle: what the listener is
// told, and what the old end reads.
#include "daemon/handover/predecessor.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <array>
#include <optional>

#include "tests/daemon/loop_helper.h"

namespace afd::daemon {
namespace {

using testing::HasSubstr;

struct NotingListener final : PredecessorListener {
    void take(HandedConnection connection) override {
        ++num_taken;
        if (keeps) connections.push_back(std::move(connection));
    }
    void take(HandedStream /*stream*/) override {}
    void on_go() override {}
    void on_remaining(const handover::Remaining& /*remaining*/) override {}
    void on_predecessor_gone(const Error& why) override { gone = why; }

    bool keeps = true;
    int num_taken = 0;
    std::vector<HandedConnection> connections;
    std::optional<Error> gone;
};

class PredecessorTest : public testing::Test {
  protected:
    PredecessorTest() {
        std::array<int, 2> ends{};
        EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
        old_ = std::make_unique<ControlChannel>(UniqueFd(ends[0]));
        handover::ToNew offer;
        offer.mutable_offer()->set_version(kHandoverVersion);
        old_->queue(offer, std::array{event_.get()});
        EXPECT_TRUE(old_->flush().ok());
        auto met = Predecessor::meet(UniqueFd(ends[1]));
        EXPECT_TRUE(met.ok()) << met.error().message;
        predecessor_ = std::move(met).value();
        predecessor_->listen(loop_, listener_);
    }

    void hand_connection(std::span<const int> fds) {
        handover::ToNew part;
        part.mutable_part()->set_unread("GET");
        old_->queue(part);
        handover::ToNew message;
        message.mutable_connection()->set_door(std::string(kHttpDoor));
        old_->queue(message, fds);
        EXPECT_TRUE(old_->flush().ok());
    }

    const UniqueFd event_{::eventfd(0, EFD_CLOEXEC)};  // In the place of any descriptor.
    EventLoop loop_;
    NotingListener listener_;
    std::unique_ptr<ControlChannel> old_;
    std::unique_ptr<Predecessor> predecessor_;
};

// One that cannot even read its configuration has something to say, too.
TEST(Predecessor, ARefusalIsSaidBeforeTheOfferIsRead) {
    std::array<int, 2> ends{};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    ControlChannel old{UniqueFd(ends[0])};
    Predecessor::refuse(UniqueFd(ends[1]), "afd.toml:1:1: unknown key");
    static_cast<void>(old.read());
    handover::ToOld message;
    ASSERT_TRUE(old.next(message).value());
    EXPECT_EQ(message.failed().message(), "afd.toml:1:1: unknown key");
}

TEST_F(PredecessorTest, ConnectionsComeWithTheirSocketsAndBytes) {
    const std::array fds = {event_.get()};
    for (int i = 0; i < 20; ++i) hand_connection(fds);
    EXPECT_TRUE(run_until(loop_, [&] { return listener_.connections.size() == 20; }));
    for (const HandedConnection& connection : listener_.connections) {
        EXPECT_EQ(connection.door, kHttpDoor);
        EXPECT_TRUE(connection.socket.valid());
        EXPECT_EQ(connection.unread, "GET");
    }
    EXPECT_FALSE(listener_.gone);
    old_.reset();
    ASSERT_TRUE(run_until(loop_, [&] { return listener_.gone.has_value(); }));
    EXPECT_EQ(listener_.gone->code, Code::kUnavailable);
    EXPECT_TRUE(predecessor_->has_gone());
}

// Goal: a handover needs few descriptors beside those of the connections that stay. Method: many
// that close at once, and a limit of few more open files than there are. Oracle: all have come.
TEST_F(PredecessorTest, ConnectionsDoNotComeAllAtOnce) {
    listener_.keeps = false;
    const std::array fds = {event_.get()};
    for (int i = 0; i < 80; ++i) hand_connection(fds);
    rlimit before{};
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
    const UniqueFd next(::fcntl(event_.get(), F_DUPFD_CLOEXEC, 0));
    const rlimit few{static_cast<rlim_t>(next.get()) + 50, before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
    EXPECT_TRUE(
        run_until(loop_, [&] { return listener_.num_taken == 80 || listener_.gone.has_value(); }));
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
    EXPECT_EQ(listener_.num_taken, 80);
    EXPECT_FALSE(listener_.gone) << listener_.gone->message;
}

// The old one once went on handing connections over to nobody, and waited for ever until all of it
// was read.
TEST_F(PredecessorTest, WhatCannotBeReadIsSaidAndIsTheEndOfTheSocket) {
    hand_connection({});
    ASSERT_TRUE(run_until(loop_, [&] { return listener_.gone.has_value(); }));
    EXPECT_EQ(listener_.gone->code, Code::kDataLoss);
    const std::string why = "announces 1 descriptors, but 0 came";
    EXPECT_THAT(listener_.gone->message, HasSubstr(why));
    predecessor_->say_ending();
    const Result<> read = old_->read();
    ASSERT_FALSE(read.ok()) << "the socket is open";
    EXPECT_EQ(read.error().code, Code::kUnavailable);
    handover::ToOld said;
    const Result<bool> has_said = old_->next(said);
    ASSERT_TRUE(has_said.ok() && has_said.value());
    EXPECT_THAT(said.failed().message(), HasSubstr("it cannot read what it is handed: "));
    EXPECT_THAT(said.failed().message(), HasSubstr(why));
    EXPECT_FALSE(old_->next(said).value()) << "it is over";
}

}  // namespace
}  // namespace afd::daemon
