// SPDX-License-Identifier: Apache-2.0
//
// What a worker with many peers says of itself: how often, and to whom.

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <numeric>
#include <span>
#include <thread>
#include <vector>

#include "schedule/ucx/ucx_message.h"
#include "schedule/ucx/ucx_worker.h"
#include "schedule/wait/adaptive_wait.h"
#include "tests/schedule/ucx/ucx_network.h"

namespace afd::schedule::stress {
namespace {

constexpr uint32_t kSessions = 64;

Geometry crowded_geometry() {
    Geometry geometry = small_geometry();
    geometry.num_sessions = kSessions;
    geometry.num_ffn_workers = 1;
    return geometry;
}

// All sessions of a rank, in one process: says hello for each, and counts the heartbeats of each.
class Crowd final : public UcxReceiver {
  public:
    explicit Crowd(UcxNetwork& network)
        : worker_(UcxWorker::make(network.config(), false).value()) {
        for (uint32_t session = 0; session < kSessions; ++session) {
            network.book().set(Role::kAttention, session, {1, {}});
        }
        worker_->start(*this);
        const UcxWorker::Lock held = worker_->lock();
        for (uint32_t session = 0; session < kSessions; ++session) {
            paths_[session] = worker_->connect(network.book().get(Role::kFfn, 0).address).value();
            UcxHeader& hello = hellos_[session].header;
            hello.magic = kUcxMagic;
            hello.instance_id = test_identity().instance_id;
            hello.epoch = 1;
            hello.connection = 1;
            hello.kind = UcxKind::kHello;
            hello.session = session;
            worker_->send(*paths_[session], hellos_[session]);
        }
    }
    ~Crowd() override { worker_->stop(); }
    Crowd(const Crowd&) = delete;
    Crowd& operator=(const Crowd&) = delete;

    std::vector<uint64_t> num_beats() const {
        std::vector<uint64_t> counts;
        // Relaxed: they only count.
        for (const auto& count : num_beats_)
            counts.push_back(count.load(std::memory_order_relaxed));
        return counts;
    }

  private:
    void on_message(const std::shared_ptr<UcxPath>&,
                    const UcxHeader& header,
                    std::span<const std::byte>) override {
        if (header.kind != UcxKind::kHeartbeat || header.session >= kSessions) return;
        // Relaxed: as above.
        num_beats_[header.session].fetch_add(1, std::memory_order_relaxed);
    }
    void on_tick(uint64_t) override {}

    std::array<std::atomic<uint64_t>, kSessions> num_beats_{};
    std::array<UcxMessage, kSessions> hellos_;  // Outlive the worker that sends them.
    std::array<std::shared_ptr<UcxPath>, kSessions> paths_;
    std::unique_ptr<UcxWorker> worker_;
};

// Goal: heartbeats to a crowd leave the lock, and the peers, time for rows. Method: a rank with 64
// sessions that always has news, as one that works. Oracle: what arrives of it, by the time that
// has passed; each session hears of it.
TEST(UcxHeartbeats, GoToAFewPeersAtATimeAndToAllInTurn) {
    UcxNetwork network(crowded_geometry(),
                       {.transports = "tcp", .devices = "lo", .near_by_memory = true});
    const auto returns = network.returns(0);
    const Crowd crowd(network);
    Heartbeat heartbeat = returns->heartbeat();
    heartbeat.start(::getpid());
    const auto fewest = [](const std::vector<uint64_t>& counts) {
        return *std::min_element(counts.begin(), counts.end());
    };
    const auto total = [](const std::vector<uint64_t>& counts) {
        return std::accumulate(counts.begin(), counts.end(), uint64_t{0});
    };
    const uint64_t deadline_us = steady_now_us() + 60'000'000;
    const auto beat_until = [&](uint64_t num_beats) {
        std::vector<uint64_t> counts;
        while (fewest(counts = crowd.num_beats()) < num_beats && steady_now_us() < deadline_us) {
            heartbeat.beat();
            std::this_thread::yield();
        }
        return counts;
    };
    // Each hello makes a tick of its own, so all of them come before the time that counts.
    beat_until(1);
    const uint64_t start_us = steady_now_us();
    const uint64_t num_before = total(crowd.num_beats());
    // Many times the turn has come round.
    constexpr uint64_t kBeats = 40;
    const std::vector<uint64_t> counts = beat_until(kBeats);
    // Those of some ticks may still be on their way at the start.
    constexpr uint64_t kTicksOnTheirWay = 10;
    const uint64_t num_ticks = (steady_now_us() - start_us) / UcxWorker::kTickUs + kTicksOnTheirWay;
    EXPECT_GE(fewest(counts), kBeats);
    EXPECT_LE(total(counts) - num_before, num_ticks * UcxEnd::kBeatsAtOnce);
}

}  // namespace
}  // namespace afd::schedule::stress
