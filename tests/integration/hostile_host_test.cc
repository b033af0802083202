// SPDX-License-Identifier: Apache-2.0
//
// A host that has a certificate, and says what it likes.
//
// Goal: it ends its own workers and nothing else. Method: it joins, and answers whoever asks for
// its worker with messages drawn at random: well-formed ones that nobody may send, sizes and
// numbers out of all bounds, and frames that are no message. Oracle: afdd lives and answers, its
// memory does not grow, and when an honest host comes in its place requests have the tokens of an
// instance alone. And those who have no certificate, at the port of a host.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "daemon/cluster/cluster_channel.h"
#include "daemon/cluster/cluster_protocol.h"
#include "daemon/instance/build_version.h"
#include "daemon/tcp/tcp_socket.h"
#include "model/family/model_files.h"
#include "model/weight_cache/model_digest.h"
#include "ops/format/numeric_class.h"
#include "proto/cluster.pb.h"
#include "tests/integration/background_generation.h"
#include "tests/integration/footprint.h"
#include "tests/integration/joined_process.h"

namespace afd::test {
namespace {

using Clock = std::chrono::steady_clock;
using daemon::ClusterChannel;
using daemon::ClusterIdentity;

// Carries the channel on until `is_done()`, for at most `patience`; false: it ended, or nothing
// came.
bool pump(ClusterChannel& channel,
          const std::function<bool()>& is_done,
          std::chrono::milliseconds patience) {
    const auto deadline = Clock::now() + patience;
    while (Clock::now() < deadline) {
        const bool is_alive = channel.flush().ok() && channel.read().ok();
        if (is_done()) return true;
        if (!is_alive) return false;
        const short events = channel.wants_write() ? POLLIN | POLLOUT : POLLIN;
        pollfd entry{channel.fd(), events, 0};
        ::poll(&entry, 1, 10);
    }
    return false;
}

class HostileHost {
  public:
    HostileHost(const std::string& certificates, const std::string& leader, uint32_t seed)
        : random_(seed), identity_(ClusterIdentity::load(certificates, "b").value()) {
        daemon::ListenAddress own = daemon::parse_listen_address("127.0.0.1:0").value();
        listening_ = daemon::listen_tcp(own, "test").value();
        cluster::HostMessage message;
        cluster::Join& join = *message.mutable_join();
        join.set_version(daemon::kClusterVersion);
        join.set_build(daemon::build_version());
        join.set_port(own.port);
        const auto files = model::ModelFiles::open(test_model(), ops::KvDtype::kBf16).value();
        join.set_model_identity(files.identity());
        model::ModelDigest digest(files.tensors(), files.config_text(), "");
        join.set_model_digest(digest.compute(1).value());
        join.add_numeric_classes(std::string(ops::name_of(ops::best_numeric_class())));
        const auto deadline = Clock::now() + kPatience;
        cluster::LeaderMessage answer;
        // Until the leader has read its weights.
        do {
            answer = answer_of(leader, message);
            if (!answer.has_joined()) std::this_thread::sleep_for(std::chrono::milliseconds(50));
        } while (answer.refusal().code() == static_cast<uint32_t>(Code::kUnavailable) &&
                 Clock::now() < deadline);
        EXPECT_TRUE(answer.has_joined()) << answer.ShortDebugString();
    }

    // Waits for a stand-in, says a few things, and waits for its end. False: none came.
    bool attack() {
        cluster::HostMessage beat;
        beat.mutable_beat();
        leader_->queue(beat);
        pump(
            *leader_, [] { return true; }, std::chrono::milliseconds(10));
        pollfd entry{listening_.get(), POLLIN, 0};
        if (::poll(&entry, 1, 5000) <= 0) return false;
        daemon::UniqueFd socket(::accept(listening_.get(), nullptr, nullptr));
        ClusterChannel stand_in = ClusterChannel::accept(std::move(socket), identity_).value();
        cluster::StandInMessage asked;
        const auto is_asked = [&] {
            const auto next = stand_in.next(asked);
            return next.ok() && next.value();
        };
        if (!pump(stand_in, is_asked, kPatience)) return false;
        for (int i = 0; i < 5; ++i) say_something(stand_in, asked.take());
        pump(
            stand_in, [] { return false; }, std::chrono::milliseconds(60));
        return true;
    }

  private:
    // What the leader says on a connection of its own, which is kept.
    cluster::LeaderMessage answer_of(const std::string& leader,
                                     const cluster::HostMessage& joining) {
        const auto address = daemon::parse_listen_address(leader).value();
        auto socket = daemon::connect_tcp(daemon::socket_address_of(address)).value();
        leader_ = std::make_unique<ClusterChannel>(
            ClusterChannel::connect(std::move(socket), identity_).value());
        leader_->queue(joining);
        cluster::LeaderMessage answer;
        EXPECT_TRUE(pump(
            *leader_, [&] { return leader_->next(answer).value(); }, kPatience));
        return answer;
    }

    uint64_t any() { return random_() % 4 == 0 ? random_() : random_() % 4; }
    std::string any_bytes() { return std::string(random_() % 3000, static_cast<char>(random_())); }

    void say_something(ClusterChannel& stand_in, const cluster::Take& take) {
        cluster::WorkerHostMessage message;
        control::WorkerMessage& of_worker = *message.mutable_message();
        switch (random_() % 12) {
            case 0:
                of_worker.mutable_ready()->set_kv_tokens(any());
                break;
            case 1:
                for (int i = 0; i < 100; ++i) {
                    control::TokenEvent& token = *of_worker.mutable_events()->add_tokens();
                    token.set_sequence_id(any());
                    token.set_token(static_cast<uint32_t>(any()));
                }
                break;
            case 2:
                of_worker.mutable_events()->add_ends()->set_sequence_id(any());
                of_worker.mutable_events()->mutable_ends(0)->set_code(static_cast<uint32_t>(any()));
                break;
            case 3:
                of_worker.mutable_segment_request()->set_session(static_cast<uint32_t>(any()));
                of_worker.mutable_segment_request()->set_receive_bytes(uint64_t{1} << 50);
                break;
            case 4:
                of_worker.mutable_segment_release()->set_session(static_cast<uint32_t>(any()));
                break;
            case 5:
                of_worker.mutable_void_request()->set_rank(static_cast<uint32_t>(any()));
                break;
            case 6:
                of_worker.mutable_listening()->set_address(any_bytes());
                break;
            case 7:
                of_worker.mutable_wait()->set_text(any_bytes());
                break;
            case 8:
                message.mutable_sight()->set_heartbeat(std::string(random_() % 60, '\xff'));
                message.mutable_sight()->set_counts(any_bytes());
                break;
            case 9:
                message.mutable_refusal()->set_code(static_cast<uint32_t>(any()));
                message.mutable_refusal()->set_message(any_bytes());
                break;
            case 10:
                of_worker.mutable_hello()->set_role(take.role());
                break;
            default:
                // Unknown fields, and a text where a message belongs.
                cluster::Refusal nonsense;
                nonsense.set_message(any_bytes());
                stand_in.queue(nonsense);
                return;
        }
        stand_in.queue(message);
    }

    std::mt19937_64 random_;
    ClusterIdentity identity_;
    daemon::UniqueFd listening_;
    std::unique_ptr<ClusterChannel> leader_;
};

TEST(HostileHost, EndsItsOwnWorkersAndNothingElse) {
    const std::string certificates = make_certificates({"b"});
    auto flags = leader_flags(certificates);
    flags.insert(flags.end(),
                 {"--ffn-workers",
                  "2",
                  "--ffn-hosts",
                  "local,b",
                  "--restart-first-ms",
                  "10",
                  "--restart-max-ms",
                  "20"});
    Instance leader(flags);
    const std::string address = join_address(leader);
    // It has all that it opens by itself then.
    leader.wait_for("the workers of this host serve", [](const client::Status& status) {
        return std::ranges::count(status.workers(), "ready", &client::Worker::state) == 2;
    });
    const Footprint before = footprint_of(leader.pid());
    uint32_t num_attacks = 0;
    {
        HostileHost hostile(certificates, address, 1);
        for (int i = 0; i < 60; ++i) {
            num_attacks += hostile.attack() ? 1 : 0;
            ASSERT_EQ(leader.status().workers_size(), 3);
        }
    }
    EXPECT_GE(num_attacks, 50U);
    JoinedProcess honest({.name = "b", .certificates = certificates, .address = address});
    leader.wait_all_workers_ready();
    const Footprint after = footprint_of(leader.pid());
    EXPECT_LE(after.kib, before.kib + 32 * 1024);
    EXPECT_LE(after.num_descriptors, before.num_descriptors + 8);
    Instance alone;
    alone.wait_ready();
    const auto expected = alone.connect().generate(long_request(60));
    const auto found = leader.connect().generate(long_request(60));
    ASSERT_TRUE(found.ok()) << found.error().message;
    EXPECT_EQ(found.value().token_ids, expected.value().token_ids);
    EXPECT_EQ(leader.stop(), 0);
}

// Goal: who connects to a host and is silent keeps no stand-in from it, and fills no log. Method:
// the test is the leader, and at the port that the host names there come more strangers than it has
// guests, and a stand-in behind them. Oracle: the stand-in is heard, and told what it cannot have.
TEST(HostileStrangers, KeepNoStandInFromAHost) {
    constexpr size_t kStrangers = 64 + 20;
    ::signal(SIGPIPE, SIG_IGN);
    const std::string certificates = make_certificates({"b"});
    const auto identity = ClusterIdentity::load(certificates, "leader").value();
    daemon::ListenAddress address = daemon::parse_listen_address("127.0.0.1:0").value();
    const daemon::UniqueFd listening = daemon::listen_tcp(address, "test").value();
    JoinedProcess host({.name = "b", .certificates = certificates, .address = address.text()});
    pollfd entry{listening.get(), POLLIN, 0};
    ASSERT_GT(::poll(&entry, 1, static_cast<int>(std::chrono::milliseconds(kPatience).count())), 0);
    daemon::UniqueFd accepted(::accept(listening.get(), nullptr, nullptr));
    ClusterChannel leader = ClusterChannel::accept(std::move(accepted), identity).value();
    cluster::HostMessage joining;
    const auto has_joined = [&] {
        const auto next = leader.next(joining);
        return next.ok() && next.value() && joining.has_join();
    };
    ASSERT_TRUE(pump(leader, has_joined, kPatience));

    address.port = static_cast<uint16_t>(joining.join().port());
    const daemon::SocketAddress to = daemon::socket_address_of(address);
    std::vector<daemon::UniqueFd> strangers;
    for (size_t i = 0; i < kStrangers; ++i) strangers.push_back(daemon::connect_tcp(to).value());
    ClusterChannel stand_in =
        ClusterChannel::connect(daemon::connect_tcp(to).value(), identity).value();
    cluster::StandInMessage wish;
    wish.mutable_take()->set_role(control::ATTENTION);
    stand_in.queue(wish);
    cluster::WorkerHostMessage answer;
    const auto is_refused = [&] {
        const auto next = stand_in.next(answer);
        return next.ok() && next.value() && answer.has_refusal();
    };
    EXPECT_TRUE(pump(stand_in, is_refused, kPatience)) << "the leader is to hear why";
    EXPECT_EQ(answer.refusal().message(), "the leader had 0 workers of this role for this host");
    host.wait_for_log("refused: the leader had 0 workers of this role for this host");
    const std::string log = host.log();
    size_t num_dropped = 0;
    for (size_t at = 0; (at = log.find("dropped for another", at)) != std::string::npos; ++at) {
        ++num_dropped;
    }
    EXPECT_GE(num_dropped, 1U);
    EXPECT_LT(num_dropped, kStrangers - 64) << log;
}

}  // namespace
}  // namespace afd::test
