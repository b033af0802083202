// SPDX-License-Identifier: Apache-2.0
//
// A leader's and a host's end on one loop.
//
// Goal: who is silent is given up, and who was only stopped together with the other end is not.
// Method: one end says nothing any more; or the loop does not turn for longer than that takes, as
// where both ends were stopped, and both have beats to send as soon as it does. Oracle: what the
// ends hear of each other.
#include "daemon/cluster/cluster_link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "daemon/cluster/cluster_protocol.h"
#include "proto/cluster.pb.h"
#include "tests/daemon/cluster/channel_fixture.h"
#include "tests/daemon/loop_helper.h"

namespace afd::daemon {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

// An end that counts the beats that come, and notes how the link ended.
class End {
  public:
    End(EventLoop& loop, ClusterChannel channel, const std::string& peer)
        : link_(std::make_unique<ClusterLink>(
              loop, std::move(channel), peer, [this](const Result<>& read) { on_read(read); })),
          beat_timer_(loop, [this] { beat(); }) {
        beat_timer_.start(kBeatMs, kBeatMs);
    }

    void fall_silent() { beat_timer_.stop(); }
    int num_beats() const { return num_beats_; }
    // Of the link; empty: it goes on.
    const std::string& failure() const { return failure_; }

  private:
    void beat() {
        cluster::StandInMessage message;
        message.mutable_beat();
        link_->send(message);
    }
    void on_read(const Result<>& read) {
        cluster::StandInMessage message;
        while (link_->channel().next(message).value()) ++num_beats_;
        if (read.ok()) return;
        failure_ = read.error().message;
        beat_timer_.stop();
    }

    std::unique_ptr<ClusterLink> link_;
    Timer beat_timer_;
    int num_beats_ = 0;
    std::string failure_;
};

class ClusterLinkTest : public ChannelFixture {
  protected:
    ClusterLinkTest() {
        TcpPair pair = tcp_pair();
        leader_end_ = std::make_unique<End>(loop_, leader_end(std::move(pair.accepted)), "node1");
        host_end_ = std::make_unique<End>(loop_, host_end(std::move(pair.connected)), "leader");
    }
    void wait_for_beats() {
        const int at_leader = leader_end_->num_beats();
        const int at_host = host_end_->num_beats();
        EXPECT_TRUE(daemon::run_until(loop_,
                                      [&] {
                                          return leader_end_->num_beats() > at_leader &&
                                                 host_end_->num_beats() > at_host;
                                      }))
            << leader_end_->failure() << host_end_->failure();
    }

    EventLoop loop_;
    std::unique_ptr<End> leader_end_;
    std::unique_ptr<End> host_end_;
};

TEST_F(ClusterLinkTest, WhoIsSilentIsGivenUp) {
    wait_for_beats();
    host_end_->fall_silent();
    ASSERT_TRUE(daemon::run_until(loop_, [&] { return !leader_end_->failure().empty(); }));
    EXPECT_THAT(leader_end_->failure(), HasSubstr("node1: nothing was heard of it for 5000 ms"));
    EXPECT_EQ(host_end_->failure(), "");
}

TEST_F(ClusterLinkTest, EndsThatWereStoppedTogetherGoOn) {
    for (int i = 0; i < 2; ++i) {
        wait_for_beats();
        std::this_thread::sleep_for(milliseconds(kSilentMs + 500));
    }
    wait_for_beats();
    EXPECT_EQ(leader_end_->failure() + host_end_->failure(), "");
}

}  // namespace
}  // namespace afd::daemon
