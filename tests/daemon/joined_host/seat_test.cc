// SPDX-License-Identifier: Apache-2.0
//
// A seat over a process that sleeps. The test is its stand-in, and at the worker's end of the
// socket.
//
// Goal: the stand-in hears what the kernel says of the process, and a worker that talks nonsense is
// given up once. Method: signals; and bytes that are no frame, again and again, while the stand-in
// goes on and the process has not ended as far as this one knows. Oracle: what the stand-in hears,
// and the lines of the log.
#include "daemon/joined_host/seat.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/socket.h>

#include <array>
#include <csignal>
#include <memory>
#include <string>
#include <utility>

#include "daemon/program/logging.h"
#include "schedule/layout/window_layout.h"
#include "schedule/shared_memory/segment_name.h"
#include "tests/daemon/cluster/channel_fixture.h"
#include "tests/daemon/loop_helper.h"

namespace afd::daemon {
namespace {

// Nobody hears of ends of processes while it lives.
class UnheardEnds {
  public:
    UnheardEnds() {
        sigset_t ends;
        sigemptyset(&ends);
        sigaddset(&ends, SIGCHLD);
        pthread_sigmask(SIG_BLOCK, &ends, &before_);
    }
    ~UnheardEnds() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    UnheardEnds(const UnheardEnds&) = delete;
    UnheardEnds& operator=(const UnheardEnds&) = delete;

  private:
    sigset_t before_{};
};

class SeatTest : public ChannelFixture {
  protected:
    SeatTest() {
        set_up_logging("seat_test", "error", "text");
        Seat::Settings settings;
        settings.role = control::FFN;
        settings.executable = "/bin/sleep";
        settings.arguments = {"600"};
        settings.localise = [](control::Welcome&) { return Result<>(); };
        settings.create_segments = [](const control::Welcome& welcome) {
            const schedule::Geometry geometry{.num_sessions = 1,
                                              .num_micro_batches = 1,
                                              .micro_batch_size = 1,
                                              .selected_expert_num = 1,
                                              .num_experts = 1,
                                              .attn_to_ffn_token_bytes = 512,
                                              .ffn_to_attn_token_bytes = 512,
                                              .num_ffn_workers = 1};
            return schedule::WorkerSegments::create(
                welcome.segment_prefix(),
                schedule::WindowLayout::compute(geometry).value(),
                {1, "model", "portable"},
                schedule::Role::kFfn,
                0,
                schedule::Windows::kPrivate);
        };
        settings.shared_segments = [](const control::Welcome&) {
            return schedule::WorkerSegments::Handles();
        };
        settings.on_gone = [this] { is_gone_ = true; };
        seat_ = Seat::make(loop_, std::move(settings)).value();
    }

    // The process runs, and its stand-in is at the other end of the link.
    void take() {
        TcpPair pair = tcp_pair();
        auto link = std::make_unique<ClusterLink>(
            loop_, leader_end(std::move(pair.accepted)), "stand-in", [](const Result<>&) {});
        stand_in_ = std::make_unique<ClusterLink>(
            loop_, host_end(std::move(pair.connected)), "host", [this](const Result<>&) {
                hear();
            });
        ASSERT_TRUE(daemon::run_until(loop_, [&] {
            return link->channel().is_established() && stand_in_->channel().is_established();
        }));
        control::Welcome welcome;
        welcome.set_instance_id(1);
        welcome.set_segment_prefix(
            schedule::segment_prefix("seat" + std::to_string(::getpid()), 1));
        seat_->take(std::move(link), welcome);
        ASSERT_GT(seat_->pid(), 0);
    }
    // And has come to the door.
    void admit() {
        std::array<int, 2> ends{};
        ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
        worker_ = UniqueFd(ends[0]);
        ControlChannel channel{UniqueFd(ends[1])};
        ASSERT_TRUE(seat_->admit(channel).ok());
    }
    void beat() {
        cluster::StandInMessage message;
        message.mutable_beat();
        stand_in_->send(message);
    }
    bool wait_for_stop(control::Stop stop) {
        return daemon::run_until(loop_, [&] { return stop_ == stop; });
    }
    void end() {
        seat_->shut_down(true);
        EXPECT_TRUE(daemon::run_until(loop_, [&] { return is_gone_; }));
    }

  private:
    void hear() {
        cluster::WorkerHostMessage message;
        while (stand_in_->channel().next(message).value()) {
            if (message.has_sight()) stop_ = message.sight().stop();
        }
    }

  protected:
    EventLoop loop_;
    std::unique_ptr<Seat> seat_;
    std::unique_ptr<ClusterLink> stand_in_;
    UniqueFd worker_;
    control::Stop stop_ = control::STOP_DEBUGGER;  // As heard last.
    bool is_gone_ = false;
};

TEST_F(SeatTest, SaysWhetherASignalHasStoppedTheProcess) {
    ASSERT_NO_FATAL_FAILURE(take());
    EXPECT_TRUE(wait_for_stop(control::STOP_NONE));
    ASSERT_EQ(::kill(seat_->pid(), SIGSTOP), 0);
    EXPECT_TRUE(wait_for_stop(control::STOP_SIGNAL));
    ASSERT_EQ(::kill(seat_->pid(), SIGCONT), 0);
    EXPECT_TRUE(wait_for_stop(control::STOP_NONE));
    end();
}

TEST_F(SeatTest, GivesUpAWorkerThatTalksNonsenseOnce) {
    ASSERT_NO_FATAL_FAILURE(take());
    ASSERT_NO_FATAL_FAILURE(admit());
    ::testing::internal::CaptureStderr();
    {
        const UnheardEnds unheard;
        const std::string nonsense(64, '\xff');
        for (int i = 0; i < 5; ++i) {
            ASSERT_GT(::send(worker_.get(), nonsense.data(), nonsense.size(), MSG_NOSIGNAL), 0);
            beat();
            run_for(loop_, 50, [] { return false; });
        }
        EXPECT_FALSE(is_gone_);
    }
    end();
    const std::string log = ::testing::internal::GetCapturedStderr();
    const size_t first = log.find("ffn worker 0: frame of 4294967295 bytes announced");
    ASSERT_NE(first, std::string::npos) << log;
    EXPECT_EQ(log.find("ffn worker 0", first + 1), std::string::npos) << log;
}

}  // namespace
}  // namespace afd::daemon
