// SPDX-License-Identifier: Apache-2.0
//
// Who makes the turns of UCX: the own thread of a UcxWorker, or one that comes back for more.
//
// Method: two workers over TCP on loopback; one sends, the other's turns are counted.
// Oracle: ucx_worker.h.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "schedule/ucx/ucx_worker.h"
#include "schedule/wait/adaptive_wait.h"

namespace afd::schedule {
namespace {

class CountingReceiver : public UcxReceiver {
  public:
    // Relaxed: they only count.
    uint64_t count() const { return count_.load(std::memory_order_relaxed); }
    void on_message(const std::shared_ptr<UcxPath>&,
                    const UcxHeader&,
                    std::span<const std::byte>) override {
        count_.fetch_add(1, std::memory_order_relaxed);
    }
    uint64_t num_ticks() const { return num_ticks_.load(std::memory_order_relaxed); }
    void on_tick(uint64_t) override { num_ticks_.fetch_add(1, std::memory_order_relaxed); }

  private:
    std::atomic<uint64_t> count_{0};
    std::atomic<uint64_t> num_ticks_{0};
};

class UcxWorkerTest : public testing::Test {
  protected:
    UcxWorkerTest() {
        to_->start(arrived_);
        from_->start(answered_);
        message_.header.magic = kUcxMagic;
        {
            const UcxWorker::Lock held = from_->lock();
            path_ = from_->connect(to_->address()).value();
        }
        send();
        await([&] { return arrived_.count() == 1; });
    }
    ~UcxWorkerTest() override {
        to_->stop();
        from_->stop();
    }

    // Waits for the one before to be on its way.
    void send() {
        await([&] {
            const UcxWorker::Lock held = from_->lock();
            from_->progress();
            if (message_.num_in_flight != 0) return false;
            from_->send(*path_, message_);
            return true;
        });
    }
    static void await(const std::function<bool()>& holds) {
        const uint64_t deadline_us = steady_now_us() + 30'000'000;
        while (!holds()) {
            ASSERT_LT(steady_now_us(), deadline_us);
            std::this_thread::yield();
        }
    }

    // Of 100 messages, each behind turns of this thread: until the own thread has brought it in.
    double median_us(bool hands_over) {
        std::vector<double> times;
        for (int i = 0; i < 100; ++i) {
            const uint64_t before = arrived_.count();
            for (int turn = 0; turn < 3; ++turn) to_->try_progress();
            if (hands_over) to_->hand_over();
            const uint64_t start_us = steady_now_us();
            send();
            await([&] { return arrived_.count() > before; });
            times.push_back(static_cast<double>(steady_now_us() - start_us));
        }
        std::nth_element(times.begin(), times.begin() + 50, times.end());
        return times[50];
    }

    UcxConfig config_{.transports = "tcp", .devices = "lo"};
    CountingReceiver arrived_;
    CountingReceiver answered_;
    UcxMessage message_;  // Outlives who sends it.
    std::unique_ptr<UcxWorker> to_ = UcxWorker::make(config_, true).value();
    std::unique_ptr<UcxWorker> from_ = UcxWorker::make(config_, false).value();
    std::shared_ptr<UcxPath> path_;
};

TEST_F(UcxWorkerTest, OwnThreadIsNotWokenByMessagesThatAnotherTakes) {
    constexpr uint64_t kMessages = 10'000;
    const uint64_t num_turns = to_->num_turns();
    const uint64_t start_us = steady_now_us();
    std::thread sender([&] {
        for (uint64_t i = 0; i < kMessages; ++i) send();
    });
    await([&] {
        to_->try_progress();
        return arrived_.count() > kMessages;
    });
    sender.join();
    const uint64_t num_rests = (steady_now_us() - start_us) / UcxWorker::kRestUs;
    // Some are its own, when this one has no core for a while.
    EXPECT_LT(to_->num_turns() - num_turns, 2 * num_rests + kMessages / 8);
}

TEST_F(UcxWorkerTest, OwnThreadIsBackAsSoonAsItIsHandedOver) {
    const double without_us = median_us(false);
    EXPECT_GT(without_us, 0.5 * UcxWorker::kRestUs);
    EXPECT_LT(median_us(true), without_us - 0.5 * UcxWorker::kRestUs);
}

// A heartbeat goes with each: a data thread that sleeps often must not send one each time.
TEST_F(UcxWorkerTest, HandingOverBringsNoTickForward) {
    const uint64_t num_ticks = arrived_.num_ticks();
    const uint64_t start_us = steady_now_us();
    for (uint64_t i = 0; i < 300; ++i) {
        const uint64_t before = arrived_.count();
        send();
        await([&] {
            to_->try_progress();
            return arrived_.count() > before;
        });
        to_->hand_over();
    }
    const uint64_t num_due = (steady_now_us() - start_us) / UcxWorker::kTickUs;
    EXPECT_LE(arrived_.num_ticks() - num_ticks, num_due + 2);
}

}  // namespace
}  // namespace afd::schedule
