// SPDX-License-Identifier: Apache-2.0
#pragma once

// VoidedRounds: what afdd has granted not to be executed any more (R12), by rank, until the rank's
// successor has said Ready. Until then each of its processes hears it when it has its weights: one
// may die before it has acknowledged what is voided (docs/protocol/failover.pml, NO_KEEP).
//
//     open -- tell(): the process scans from here on --> closed
//      ^                                                   |
//      +------------ reopen(): the process is gone --------+
//
// A process that loads its weights executes nothing, so a round may be voided as well as where
// there is none: a session that asks late does not wait for the weights. After tell() nothing is
// granted any more (NO_CLOSE).
//
// One round for each lane and rank: a session stores nothing to a rank before what is voided there
// is acknowledged, and asks for nothing else there.

#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "proto/control.pb.h"

namespace afd::daemon {

class VoidedRounds {
  public:
    // Whether a round at the rank can still be voided.
    bool is_open(uint32_t rank) const { return !closed_.contains(rank); }

    // REQUIRES: is_open(request.rank()).
    void note(uint32_t session, const control::VoidRequest& request) {
        ranks_[request.rank()][{session, request.micro_batch()}] = request.round();
    }

    // What the rank's process is not to execute: all that it will ever hear.
    control::Voided tell(uint32_t rank) {
        closed_.insert(rank);
        control::Voided told;
        const auto found = ranks_.find(rank);
        if (found == ranks_.end()) return told;
        for (const auto& [lane, round] : found->second) {
            control::VoidedRound& voided = *told.add_rounds();
            voided.set_session(lane.first);
            voided.set_micro_batch(lane.second);
            voided.set_round(round);
        }
        return told;
    }

    // The rank's process is ready, so it has acknowledged all of them.
    void forget(uint32_t rank) {
        closed_.insert(rank);
        ranks_.erase(rank);
    }

    // The rank's process is gone (R8).
    void reopen(uint32_t rank) { closed_.erase(rank); }

  private:
    using Lane = std::pair<uint32_t, uint32_t>;  // Session, micro-batch.
    std::map<uint32_t, std::map<Lane, int32_t>> ranks_;
    std::set<uint32_t> closed_;
};

}  // namespace afd::daemon
