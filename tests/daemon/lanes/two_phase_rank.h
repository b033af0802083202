// SPDX-License-Identifier: Apache-2.0
#pragma once

// TwoPhaseRank: an FFN worker's two-phase part on a thread of its own, until the object ends.

#include <atomic>
#include <functional>
#include <memory>
#include <thread>

#include "daemon/config/instance_geometry.h"
#include "schedule/layout/row_dtype.h"
#include "tests/daemon/lanes/two_phase_world.h"

namespace afd::daemon {

class TwoPhaseRank {
  public:
    struct Setup {
        TwoPhaseWorld* world = nullptr;
        const schedule::ExpertPlacement* placement = nullptr;
        uint32_t rank = 0;
        size_t hidden = 0;
        schedule::RowDtype dispatch_dtype = schedule::RowDtype::kBf16;
        // It dies again and again, after 1 to `steps_per_life` steps (0: never): all that it has in
        // its own memory is lost, and a successor starts.
        uint32_t steps_per_life = 0;
    };
    // Makes the experts of one life, on the rank's thread.
    using MakeExperts = std::function<std::unique_ptr<ops::Experts>()>;

    TwoPhaseRank(const Setup& setup, MakeExperts make_experts)
        : setup_(setup),
          make_experts_(std::move(make_experts)),
          doorbell_fd_(setup.world->rank_doorbell(setup.rank).eventfd()),
          thread_([this] { run(); }) {}
    ~TwoPhaseRank() {
        // Relaxed: a flag that orders nothing; the doorbell is rung after it.
        is_over_.store(true, std::memory_order_relaxed);
        schedule::DoorbellRinger(nullptr, doorbell_fd_).ring();
        thread_.join();
    }

  private:
    bool is_over() const { return is_over_.load(std::memory_order_relaxed); }

    void run() {
        for (uint32_t num_lives = 0; !is_over(); ++num_lives) {
            // 7 has no common divisor with the numbers that are used: every length comes.
            const uint32_t max = setup_.steps_per_life;
            live(max == 0 ? 0 : 1 + 7 * (num_lives + 1) % max);
        }
    }

    void live(uint32_t steps_max) {
        TwoPhaseWorld& world = *setup_.world;
        WorkerPort& port = world.port(setup_.rank);
        ops::SerialParallel serial;
        const auto experts = make_experts_();
        const auto receiver =
            world.receiver(setup_.rank,
                           *setup_.placement,
                           two_phase_row_bytes(setup_.dispatch_dtype, setup_.hidden));
        // What afdd answered to a predecessor ended with its channel.
        WorkerCommand command;
        while (port.pop_command(command)) {
        }
        TwoPhaseExperts part({.receiver = receiver.get(),
                              .placement = setup_.placement,
                              .experts = experts.get(),
                              .hidden = setup_.hidden,
                              .dispatch_dtype = setup_.dispatch_dtype,
                              .parallel = &serial,
                              .port = &port});
        schedule::AdaptiveWait wait(world.rank_doorbell(setup_.rank), 20, false);
        for (uint32_t steps = 0; !is_over() && (steps_max == 0 || steps < steps_max);) {
            if (port.pop_command(command)) {
                part.on_segment(command);
                ++steps;
            } else if (part.advance()) {
                ++steps;
            } else {
                wait.until(schedule::steady_now_us() + 10'000, true, [&](schedule::Order order) {
                    return port.has_command() || part.has_work(order) || is_over();
                });
            }
        }
    }

    const Setup setup_;
    const MakeExperts make_experts_;
    std::atomic<bool> is_over_{false};
    int doorbell_fd_;
    std::thread thread_;
};

}  // namespace afd::daemon
