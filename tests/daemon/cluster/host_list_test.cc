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
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/cluster/cluster_identity.h"
#include "daemon/cluster/cluster_protocol.h"
#include "daemon/config/config.h"
#include "daemon/config/listen_address.h"
#include "daemon/joined_host/leader_tie.h"
#include "daemon/program/logging.h"
#include "daemon/tcp/tcp_socket.h"
#include "tests/daemon/cluster/channel_fixture.h"
#include "tests/daemon/loop_helper.h"

namespace afd::daemon {
namespace {

constexpr const char* kNumericClass = "avx512-bf16";

// What a host says to join, and hears, in a loop.
class TestHost : public LeaderListener {
  public:
    TestHost(EventLoop& loop, const ListenAddress& leader, ClusterIdentity identity)
        : identity_(std::move(identity)) {
        config_.join = leader.text();
        tie_ = LeaderTie::make(loop, config_, identity_, *this).value();
    }

    cluster::Join joining;
    std::optional<Error> refusal;

    void start() { tie_->start(); }

  private:
    Result<cluster::Join> join_over(const ClusterLink&) override { return joining; }
    Result<> on_joined(const ClusterLink&, const cluster::Joined&) override { return {}; }
    void on_leader_over() override {}
    void on_leader_lost() override {}
    void on_leader_missing(const std::string&) override {}
    void on_leader_refuses(const Error& why) override { refusal = why; }

    Config config_;
    ClusterIdentity identity_;
    std::unique_ptr<LeaderTie> tie_;
};

class HostListTest : public ChannelFixture, public HostListener {
  protected:
    HostListTest() {
        set_up_logging("host_list_test", "warn", "text");
        HostList::Plan plan;
        plan.build = "0.2.0 (rows 4)";
        plan.numeric_class = kNumericClass;
        plan.native_numeric_classes = {"portable", "avx2", "avx512", kNumericClass, "amx"};
        plan.model_identity = "weights and factors";
        plan.weights_identity = "weights";
        plan.vocabulary_digest = "all tokens";
        plan.awaited["node1"].set_num_attention_workers(1);
        plan.awaited["node2"].set_num_ffn_workers(1);
        plan.check_room = [](const std::string& host, const cluster::Join& join) -> Result<> {
            if (join.available_bytes() >= kRoomBytes) return {};
            return Error{Code::kResourceExhausted,
                         host + ": no room in " + std::to_string(join.available_bytes())};
        };
        list_ = HostList::open(loop_,
                               parse_listen_address("127.0.0.1:0").value(),
                               files().identity("leader"),
                               std::move(plan),
                               *this)
                    .value();
        list_->set_model_digest("all bits");
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
        join.set_build("0.2.0 (rows 4)");
        join.set_port(1);
        join.add_numeric_classes(kNumericClass);
        join.set_model_identity("weights and factors");
        join.set_weights_identity("weights");
        join.set_model_digest("all bits");
        join.set_vocabulary_digest("all tokens");
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
    static constexpr uint64_t kRoomBytes = 1000;
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

// Goal: a host that has no room hears it at each attempt, and the log says it once, though what is
// available is another number each time. One that has its workers already is not asked.
TEST_F(HostListTest, AHostWithoutRoomIsRefusedAndSaidOnce) {
    ::testing::internal::CaptureStderr();
    for (uint64_t available = 1; available < 4; ++available) {
        ClusterChannel host = host_end(come());
        cluster::HostMessage message = join_of("boot 1");
        message.mutable_join()->set_available_bytes(available);
        host.queue(message);
        const cluster::LeaderMessage answer = answer_to(host);
        EXPECT_EQ(answer.refusal().code(), static_cast<uint32_t>(Code::kResourceExhausted));
        EXPECT_EQ(answer.refusal().message(), "node1: no room in " + std::to_string(available));
    }
    const std::string lines = ::testing::internal::GetCapturedStderr();
    EXPECT_THAT(lines, ::testing::HasSubstr("refused: node1: no room in 1"));
    EXPECT_EQ(std::ranges::count(lines, '\n'), 1) << lines;
    EXPECT_TRUE(joined_.empty());
    come_as_host();
    cluster::HostMessage fits = join_of("boot 1");
    fits.mutable_join()->set_available_bytes(kRoomBytes);
    host_->queue(fits);
    EXPECT_TRUE(answer_to(*host_).has_joined());
    ClusterChannel again = host_end(come());
    again.queue(join_of("boot 1"));
    EXPECT_TRUE(answer_to(again).has_joined());
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

// Goal: builds that may not understand each other never try. Method: another version of the
// program, another format of the same version, and one from before builds were said. Oracle: both
// ends say both versions, and what to do.
TEST_F(HostListTest, AnotherVersionIsRefusedOnBothEnds) {
    struct Case {
        const char* build;
        uint32_t version;
        const char* shown;
    };
    for (const Case& other : {Case{"0.1.0 (rows 4)", kClusterVersion, "0.1.0 (rows 4)"},
                              Case{"0.2.0 (rows 3)", kClusterVersion, "0.2.0 (rows 3)"},
                              Case{"", 1, "unknown (hosts 1)"}}) {
        ::testing::internal::CaptureStderr();
        TestHost host(loop_, list_->address(), files().identity("node1"));
        host.joining = join_of("boot 1").join();
        host.joining.set_build(other.build);
        host.joining.set_version(other.version);
        host.start();
        EXPECT_TRUE(afd::daemon::run_until(loop_, [&] { return host.refusal.has_value(); }));
        const std::string lines = ::testing::internal::GetCapturedStderr();
        const std::string why = std::string("host 'node1' has afdd of version ") + other.shown +
                                ", the leader of version 0.2.0 (rows 4): install the same one on "
                                "both";
        EXPECT_THAT(lines, ::testing::HasSubstr("refused: " + why));
        ASSERT_TRUE(host.refusal.has_value());
        EXPECT_EQ(host.refusal->message,
                  "leader at " + list_->address().text() + " refuses this host: " + why);
    }
    EXPECT_THAT(joined_, ::testing::IsEmpty());
}

// Goal: whoever hears that a processor cannot run the leader's numeric class hears which one to ask
// for. Method: a leader that has AMX and runs avx512-bf16, and processors without that. They run
// amx all the same, many times as slowly.
TEST_F(HostListTest, AHostWithoutTheNumericClassIsRefusedOnBothEnds) {
    using Classes = std::vector<std::string>;
    const auto expect_refused = [&](const Classes& native, const std::string& why) {
        ::testing::internal::CaptureStderr();
        TestHost host(loop_, list_->address(), files().identity("node1"));
        host.joining = join_of("boot 1").join();
        host.joining.mutable_numeric_classes()->Assign(native.begin(), native.end());
        host.joining.add_numeric_classes("amx");
        host.joining.mutable_native_numeric_classes()->Assign(native.begin(), native.end());
        host.start();
        EXPECT_TRUE(afd::daemon::run_until(loop_, [&] { return host.refusal.has_value(); }));
        const std::string lines = ::testing::internal::GetCapturedStderr();
        EXPECT_THAT(lines, ::testing::HasSubstr("refused: " + why));
        ASSERT_TRUE(host.refusal.has_value());
        EXPECT_THAT(host.refusal->message, ::testing::EndsWith(" refuses this host: " + why));
    };
    const auto cannot = [](const std::string& common) {
        return "the processor of host 'node1' cannot run numeric class avx512-bf16; the fastest "
               "that both have is " +
               common + ": start the leader with --numeric-class " + common;
    };
    expect_refused({"portable", "avx2", "avx512"}, cannot("avx512"));
    expect_refused({"portable"}, cannot("portable"));
    expect_refused({}, "host 'node1' says that its processor has not even numeric class portable");
    EXPECT_THAT(joined_, ::testing::IsEmpty());
}

// The identity looks at samples of each tensor.
TEST_F(HostListTest, OtherBitsOfTheSameModelAreRefused) {
    ::testing::internal::CaptureStderr();
    come_as_host();
    cluster::HostMessage message = join_of("boot 1");
    message.mutable_join()->set_model_digest("all bits but one");
    host_->queue(message);
    const cluster::Refusal refusal = answer_to(*host_).refusal();
    const std::string lines = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(refusal.code(), static_cast<uint32_t>(Code::kFailedPrecondition));
    EXPECT_EQ(refusal.message(),
              "host 'node1' has other bits of the same model: the digest of its weights is all "
              "bits but one, the leader's all bits; copy the leader's files to it again, "
              "and delete weights-* of its weight_cache");
    EXPECT_THAT(lines, ::testing::HasSubstr("refused: " + refusal.message()));
    EXPECT_THAT(joined_, ::testing::IsEmpty());
}

// Grammars would allow other texts there.
TEST_F(HostListTest, OtherTokensAreRefusedWhereAttentionWorkersAreToRun) {
    ::testing::internal::CaptureStderr();
    come_as_host();
    cluster::HostMessage message = join_of("boot 1");
    message.mutable_join()->set_vocabulary_digest("all tokens but one");
    host_->queue(message);
    const cluster::Refusal refusal = answer_to(*host_).refusal();
    const std::string lines = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(refusal.code(), static_cast<uint32_t>(Code::kFailedPrecondition));
    EXPECT_EQ(refusal.message(),
              "host 'node1' has another tokenizer than the leader: the digest of its tokens is all "
              "tokens but one, the leader's all tokens; give both the same tokenizer.json (or "
              "tiktoken.model) and tokenizer_config.json");
    EXPECT_THAT(lines, ::testing::HasSubstr("refused: " + refusal.message()));
    EXPECT_THAT(joined_, ::testing::IsEmpty());
}

TEST_F(HostListTest, OtherTokensDoNotMatterWhereNoAttentionWorkerIsToRun) {
    set_log_level("off");
    TestHost host(loop_, list_->address(), files().identity("node2"));
    host.joining = join_of("boot 2").join();
    host.joining.set_vocabulary_digest("all tokens but one");
    host.start();
    EXPECT_TRUE(afd::daemon::run_until(
        loop_, [&] { return host.refusal.has_value() || !joined_.empty(); }));
    EXPECT_THAT(joined_, ::testing::ElementsAre("node2"));
}

TEST_F(HostListTest, AHostTriesAgainUntilTheLeaderKnowsItsOwnBits) {
    set_log_level("off");
    list_->set_model_digest("");
    come_as_host();
    say_join();
    const cluster::Refusal refusal = answer_to(*host_).refusal();
    EXPECT_EQ(refusal.code(), static_cast<uint32_t>(Code::kUnavailable));
    EXPECT_THAT(refusal.message(), ::testing::HasSubstr("the leader still reads its weights"));
    list_->set_model_digest("all bits");
    ClusterChannel again = host_end(come());
    again.queue(join_of("boot 1"));
    EXPECT_TRUE(answer_to(again).has_joined());
}

}  // namespace
}  // namespace afd::daemon
