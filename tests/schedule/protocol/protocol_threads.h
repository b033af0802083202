// SPDX-License-Identifier: Apache-2.0
#pragma once

// The protocol body with its roles as threads, over an instance that gives out transports:
// LocalInstance (one mapping) or ToyNetwork (no shared memory). A crash abandons the role; its
// successor starts with fresh private state.

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "tests/schedule/protocol/protocol_body.h"
#include "tests/schedule/protocol/watchdog.h"

namespace afd::schedule::stress {

template <typename Instance>
class Threads {
  public:
    explicit Threads(const Params& params) : params_(params), instance_(stress_geometry()) {}

    const Progress& progress() const { return progress_; }

    // Starts a few rounds before the wrap-around: age_rounds().
    void age() {
        age_rounds(
            stress_geometry(),
            [this](uint32_t f, uint32_t s, uint32_t m) { return instance_.descriptor(f, s, m); },
            [this](uint32_t f, uint32_t s, uint32_t m) { return instance_.acknowledged(f, s, m); },
            [this](uint32_t s, uint32_t m, uint32_t bs, uint32_t k) {
                return instance_.result_flag(s, m, bs, k);
            });
    }

    // Runs every role until all sessions have done their rounds. A role that dies is followed by
    // a new life with fresh private state, as the supervisor would start it.
    void run() {
        const Watchdog watchdog(240);
        std::vector<std::thread> ranks;
        std::vector<std::thread> sessions;
        for (uint32_t f = 0; f < stress_geometry().num_ffn_workers; ++f) {
            ranks.emplace_back([this, f] {
                while (!live_as_ffn(f)) continue;
            });
        }
        for (uint32_t s = 0; s < stress_geometry().num_sessions; ++s) {
            sessions.emplace_back([this, s] {
                while (!live_as_attention(s)) continue;
            });
        }
        for (std::thread& session : sessions) session.join();
        // Relaxed here and below: see Progress.
        progress_.stop.store(1, std::memory_order_relaxed);
        instance_.dispatch(0)->ring_peers();
        for (std::thread& rank : ranks) rank.join();

        EXPECT_EQ(progress_.failed.load(std::memory_order_relaxed), 0u);
        for (uint32_t s = 0; s < stress_geometry().num_sessions; ++s) {
            EXPECT_GE(progress_.rounds_done[s].load(std::memory_order_relaxed),
                      params_.rounds_per_session);
        }
    }

  private:
    bool live_as_attention(uint32_t session) {
        Fate fate(params_, progress_, false);
        const auto real = instance_.dispatch(session);
        MortalDispatch transport(*real, fate);
        return run_attention(transport, params_, progress_, fate);
    }
    bool live_as_ffn(uint32_t rank) {
        Fate fate(params_, progress_, false);
        const auto real = instance_.returns(rank);
        MortalReturn transport(*real, fate);
        return run_ffn(transport, params_, progress_, fate);
    }

    Params params_;
    Instance instance_;
    Progress progress_;
};

}  // namespace afd::schedule::stress
