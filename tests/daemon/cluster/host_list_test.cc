// SPDX-License-Identifier: Apache-2.0
//
// Who comes to the port for hosts without being one.
//
// Goal: strangers keep no host out and fill no log. Method: more connections than the list has
// guests, all silent, and a real host before or behind them. Oracle: the host joins, and the lines
// of the log.
#include "daemon/cluster/host_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "daemon/cluster/cluster_protocol.h"
#include "daemon/program/logging.h"
#include "daemon/tcp/tcp_socket.h"
#include "tests/daemon/cluster/channel_fixture.h"
#include "tests/daemon/loop_helper.h"

namespace afd::daemon {
namespace {

constexpr const char* kNumericClass = "any";

class HostListTest : public ChannelFixture, public HostListener {
  protected:
    HostListTest() {
        set_up_logging("host_list_test", "warn", "text");
        HostList::Plan plan;
        plan.numeric_class = kNumericClass;
        plan.model_identity = "weights and factors";
        plan.weights_identity = "weights";
        plan.awaited["node1"] = {};
        list_ = HostList::open(loop_,
                               parse_listen_address("127.0.0.1:0").value(),
                               files().identity("leader"),
                               std::move(plan),
                               *this)
                    .value();
    }

    void on_host_joined(const std::string& name) override { joined_.push_back(name); }
    void on_host_left(const std::string& name) override { std::erase(joined_, name); }

    UniqueFd come() const { return connect_tcp(socket_address_of(list_->address())).value(); }
    void come_as_stranger(size_t num_times) {
        for (size_t i = 0; i < num_times; ++i) {
            strangers_.push_back(come());
            run_for(loop_, 1, [] { return false; });
        }
    }
    void come_as_host() { host_.emplace(host_end(come())); }

    // Turns the list and the host.
    bool turn_until(const std::function<bool()>& holds) {
        return afd::daemon::run_until(loop_, [&] {
            EXPECT_FALSE(turn(*host_).has_value()) << "the host was dropped";
            return HasFailure() || holds();
        });
    }
    static cluster::HostMessage join_of(const std::string& boot) {
        cluster::HostMessage message;
        cluster::Join& join = *message.mutable_join();
        join.set_version(kClusterVersion);
        join.set_port(1);
        join.add_numeric_classes(kNumericClass);
        join.set_model_identity("weights and factors");
        join.set_weights_identity("weights");
        join.set_boot(boot);
        return message;
    }
    void say_join() { host_->queue(join_of("boot 1")); }
    void join() {
        come_as_host();
        say_join();
        ASSERT_TRUE(turn_until([&] { return !joined_.empty(); }));
    }

    // What the leader says to `channel` beside its beats.
    cluster::LeaderMessage answer_to(ClusterChannel& channel) {
        cluster::LeaderMessage answer;
        const bool has_come = afd::daemon::run_until(loop_, [&] {
            static_cast<void>(turn(channel).has_value());
            const Result<bool> next = channel.next(answer);
            return !next.ok() || (next.value() && !answer.has_beat());
        });
        EXPECT_TRUE(has_come);
        return answer;
    }

    static constexpr size_t kMany = HostList::kGuestsMax + 20;
    EventLoop loop_;
    std::vector<std::string> joined_;
    std::unique_ptr<HostList> list_;
    std::vector<UniqueFd> strangers_;
};

TEST_F(HostListTest, AHostJoinsBehindSilentStrangers) {
    ::testing::internal::CaptureStderr();
    come_as_stranger(kMany);
    come_as_host();
    say_join();
    EXPECT_TRUE(turn_until([&] { return !joined_.empty(); }));
    const std::string lines = ::testing::internal::GetCapturedStderr();
    EXPECT_THAT(joined_, ::testing::ElementsAre("node1"));
    EXPECT_THAT(lines, ::testing::HasSubstr("dropped for another: it has not said who it is"));
    const auto num_lines = std::ranges::count(lines, '\n');
    EXPECT_LT(num_lines, static_cast<ptrdiff_t>(kMany - HostList::kGuestsMax)) << lines;
}

// Whoever has shown a certificate is not taken for a stranger, though it has not joined yet.
TEST_F(HostListTest, AHostThatIsKnownIsNotDroppedForStrangers) {
    set_log_level("off");
    come_as_host();
    ASSERT_TRUE(turn_until([&] { return host_->is_established(); }));
    // The list takes the end of the handshake.
    run_for(loop_, 50, [&] { return turn(*host_).has_value(); });
    come_as_stranger(kMany);
    say_join();
    EXPECT_TRUE(turn_until([&] { return !joined_.empty(); }));
    EXPECT_THAT(joined_, ::testing::ElementsAre("node1"));
}

// Two machines with one certificate took each other's place, turn by turn.
TEST_F(HostListTest, ASecondMachineOfTheNameIsRefusedWhileTheFirstIsThere) {
    set_log_level("off");
    join();
    ClusterChannel second = host_end(come());
    second.queue(join_of("boot 2"));
    const cluster::LeaderMessage answer = answer_to(second);
    ASSERT_TRUE(answer.has_refusal()) << answer.ShortDebugString();
    // It may try again: the first may be gone by then.
    EXPECT_EQ(answer.refusal().code(), static_cast<uint32_t>(Code::kUnavailable));
    EXPECT_THAT(
        answer.refusal().message(),
        ::testing::HasSubstr("host 'node1' is there already, from 127.0.0.1, and this is "
                             "another machine, or it was rebooted a moment ago, at 127.0.0.1: "));
    EXPECT_THAT(joined_, ::testing::ElementsAre("node1"));
}

TEST_F(HostListTest, AHostThatWasStartedAgainTakesItsOwnPlace) {
    set_log_level("off");
    join();
    ClusterChannel second = host_end(come());
    second.queue(join_of("boot 1"));
    EXPECT_TRUE(answer_to(second).has_joined());
    ASSERT_TRUE(answer_to(*host_).has_joined()) << "that of before";
    EXPECT_THAT(answer_to(*host_).refusal().message(),
                ::testing::EndsWith("the host has joined again, from 127.0.0.1"));
}

TEST_F(HostListTest, AHostThatEndsInOrderIsNoWarning) {
    join();
    set_log_level("info");
    ::testing::internal::CaptureStderr();
    cluster::HostMessage message;
    message.mutable_leave();
    host_->queue(message);
    EXPECT_FALSE(turn(*host_).has_value());
    host_.reset();
    EXPECT_TRUE(afd::daemon::run_until(loop_, [&] { return joined_.empty(); }));
    const std::string lines = ::testing::internal::GetCapturedStderr();
    EXPECT_THAT(lines, ::testing::HasSubstr("host 'node1' at 127.0.0.1:"));
    EXPECT_THAT(lines, ::testing::HasSubstr(" has ended in order"));
    EXPECT_THAT(lines, ::testing::Not(::testing::HasSubstr("has left")));
}

// "Give both the same files" is no advice where the files are the same.
TEST_F(HostListTest, AnotherKvDtypeIsNamed) {
    set_log_level("off");
    come_as_host();
    cluster::HostMessage message = join_of("boot 1");
    message.mutable_join()->set_model_identity("weights");
    host_->queue(message);
    EXPECT_THAT(answer_to(*host_).refusal().message(),
                ::testing::HasSubstr("has the leader's weights, and another kv_dtype"));
    ClusterChannel other = host_end(come());
    message.mutable_join()->set_weights_identity("others");
    other.queue(message);
    EXPECT_THAT(answer_to(other).refusal().message(),
                ::testing::HasSubstr("give both the same files"));
}

}  // namespace
}  // namespace afd::daemon
