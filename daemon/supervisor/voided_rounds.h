// SPDX-License-Identifier: Apache-2.0
#pragma once

// VoidedRounds: what afdd has granted not to be executed any more (R12), by rank, until the rank's
// successor has said Ready. Until then each of its processes hears it in its Welcome: one may die
// before it has acknowledged what is voided (docs/protocol/failover.pml, NO_KEEP).
//
// One round for each lane and rank: a session stores nothing to a rank before what is voided there
// is acknowledged, and asks for nothing else there.

#include <cstdint>
#include <map>
#include <utility>

#include "proto/control.pb.h"

namespace afd::daemon {

class VoidedRounds {
  public:
    void note(uint32_t session, const control::VoidRequest& request) {
        ranks_[request.rank()][{session, request.micro_batch()}] = request.round();
    }
    void forget(uint32_t rank) { ranks_.erase(rank); }

    void fill(uint32_t rank, control::Welcome& welcome) const {
        const auto found = ranks_.find(rank);
        if (found == ranks_.end()) return;
        for (const auto& [lane, round] : found->second) {
            control::VoidedRound& voided = *welcome.add_voided();
            voided.set_session(lane.first);
            voided.set_micro_batch(lane.second);
            voided.set_round(round);
        }
    }

  private:
    using Lane = std::pair<uint32_t, uint32_t>;  // Session, micro-batch.
    std::map<uint32_t, std::map<Lane, int32_t>> ranks_;
};

}  // namespace afd::daemon
