// SPDX-License-Identifier: Apache-2.0
#pragma once

// FakeLane: the smallest lane. It sends nothing anywhere: its experts give every row back as it
// came, and the test says when each call is answered, which one is refused, and which never is.
//
// The loop's thread calls what ExpertLane has; answer(), acknowledge() and num_started() are the
// test's.

#include <cstring>
#include <functional>
#include <limits>
#include <vector>

#include "daemon/lanes/expert_lane.h"
#include "schedule/wait/doorbell.h"

namespace afd::daemon {

class FakeLane final : public ExpertLane {
  public:
    struct Settings {
        LaneTraits traits;
        int32_t peer = 0;           // For whom it says that it waits.
        int32_t num_answered = 0;   // Calls that are answered before they are made.
        int32_t refused_call = 0;   // From 1 on; 0: none. Refused when it is answered.
        int32_t num_corrupted = 0;  // The first calls, whose rows come back corrupted.
        int32_t poisoned_call = 0;  // Likewise; its routing weights come back not finite.
        std::function<void()> on_start = [] {};  // Called by the loop's thread.
    };
    static constexpr int32_t kAll = 1 << 30;

    FakeLane(const Settings& settings, schedule::DoorbellRinger ringer)
        : ExpertLane(settings.traits),
          settings_(settings),
          ringer_(ringer),
          answered_(settings.num_answered),
          acknowledged_(settings.num_answered),
          weights_(settings.traits.rows_max * kTopKMax, 1.0F) {}

    // Answers the next `count` calls, and is free behind them.
    void answer(int32_t count = 1) {
        schedule::publish_seq_cst(answered_, schedule::observe_own(answered_) + count);
        acknowledge(schedule::observe_own(answered_));
    }
    // Is free behind `num_calls` calls.
    void acknowledge(int32_t num_calls) {
        schedule::publish_seq_cst(acknowledged_, num_calls);
        ringer_.ring_if_armed();
    }
    int32_t num_started() const { return schedule::observe(started_, schedule::Order::kAcquire); }
    int32_t num_cancelled() const {
        return schedule::observe(cancelled_, schedule::Order::kAcquire);
    }

    bool is_free() override { return is_free(schedule::Order::kAcquire); }

    Result<> start(const ops::MoeInput& input, ops::Rows<ops::Bf16> out) override {
        AFD_ASSERT(is_free() && !is_open_ && input.num_tokens <= traits().rows_max,
                   "start of %u rows in a lane that is not free",
                   input.num_tokens);
        input_ = input;
        out_ = out;
        is_open_ = true;
        settings_.on_start();
        schedule::publish_release(started_, calls() + 1);
        return {};
    }

    bool can_advance() const override { return false; }
    Result<> advance() override { return {}; }
    bool ready() const override { return is_open_ && is_done(schedule::Order::kAcquire); }

    Result<> finish() override {
        AFD_ASSERT(ready(), "finish of a call that is not ready");
        is_open_ = false;
        if (calls() == settings_.refused_call) {
            return Error{Code::kUnavailable, "the fake experts refuse these rows"};
        }
        if (calls() <= settings_.num_corrupted) {
            return Error{Code::kDataLoss, "a row was corrupted"};
        }
        for (uint32_t row = 0; row < input_.num_tokens; ++row) {
            std::memcpy(out_.row(row), input_.x.row(row), out_.num_cols * sizeof(ops::Bf16));
        }
        weights_[0] =
            calls() == settings_.poisoned_call ? std::numeric_limits<float>::quiet_NaN() : 1.0F;
        return {};
    }

    void cancel() override {
        if (!is_open_) return;
        is_open_ = false;
        schedule::publish_release(cancelled_, schedule::observe_own(cancelled_) + 1);
    }

    const float* topk_weights() const override {
        return settings_.poisoned_call == 0 ? nullptr : weights_.data();
    }

    bool is_answered(schedule::Order order) const override {
        return is_open_ ? is_done(order) : is_free(order);
    }
    std::optional<LaneWait> waits_for(uint64_t) override {
        if (is_open_ ? ready() : is_free()) return std::nullopt;
        LaneWait wait;
        wait.info = {
            .kind = is_open_ ? schedule::WaitKind::kResults : schedule::WaitKind::kAcknowledged,
            .peer = settings_.peer,
            .layer_id = static_cast<int32_t>(input_.layer_id),
            .flag_seen = schedule::observe(acknowledged_, schedule::Order::kAcquire),
            .flag_expected = calls()};
        wait.peer.heartbeat.pid = 4711;
        return wait;
    }

  private:
    static constexpr size_t kTopKMax = 16;

    int32_t calls() const { return schedule::observe_own(started_); }
    bool is_done(schedule::Order order) const {
        return schedule::observe(answered_, order) >= calls();
    }
    bool is_free(schedule::Order order) const {
        return schedule::observe(acknowledged_, order) >= calls();
    }

    const Settings settings_;
    const schedule::DoorbellRinger ringer_;
    // Written by the test, read by the loop; and the other way round.
    int32_t answered_;
    int32_t acknowledged_;
    int32_t started_ = 0;
    int32_t cancelled_ = 0;
    // Of the loop.
    bool is_open_ = false;
    ops::MoeInput input_;
    ops::Rows<ops::Bf16> out_;
    std::vector<float> weights_;
};

}  // namespace afd::daemon
