// SPDX-License-Identifier: Apache-2.0
#pragma once

// PeerWaits: how long each FFN worker takes to answer a round, as its attention worker sees it:
// from publishing to the first look that finds its acknowledgement, or all results of the round.
// A worker that computes meanwhile looks late. Data thread only; nothing allocates after
// construction.

#include <cstdint>
#include <vector>

#include "daemon/metrics/metrics.h"
#include "schedule/dispatch/dispatch_lane.h"
#include "schedule/layout/geometry.h"
#include "schedule/wait/adaptive_wait.h"

namespace afd::daemon {

class PeerWaits {
  public:
    PeerWaits(const Metrics& metrics, const schedule::Geometry& geometry)
        : metrics_(metrics), lanes_(geometry.num_micro_batches) {
        for (Lane& lane : lanes_) lane.waiting.reserve(geometry.num_ffn_workers);
    }

    // The lane's round was published. What was still open of the one before is forgotten.
    void published(const schedule::DispatchLane& lane) {
        Lane& mine = lanes_[lane.micro_batch()];
        mine.waiting.assign(lane.published_ranks().begin(), lane.published_ranks().end());
        mine.start_ns = schedule::steady_now_ns();
    }

    // A look at a round that is not complete: counts those who have answered since the last.
    void look(const schedule::DispatchLane& lane) {
        std::erase_if(lanes_[lane.micro_batch()].waiting, [&](uint32_t rank) {
            if (!lane.acknowledged_by(rank, schedule::Order::kAcquire)) return false;
            count(lanes_[lane.micro_batch()], rank);
            return true;
        });
    }

    // All results are there.
    void complete(const schedule::DispatchLane& lane) {
        Lane& mine = lanes_[lane.micro_batch()];
        for (const uint32_t rank : mine.waiting) count(mine, rank);
        mine.waiting.clear();
    }

  private:
    struct Lane {
        uint64_t start_ns = 0;
        std::vector<uint32_t> waiting;  // Capacity F.
    };

    void count(const Lane& lane, uint32_t rank) const {
        metrics_.peer_wait(rank).record(schedule::steady_now_ns() - lane.start_ns);
    }

    Metrics metrics_;
    std::vector<Lane> lanes_;  // [M]
};

}  // namespace afd::daemon
