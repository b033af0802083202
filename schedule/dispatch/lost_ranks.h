// SPDX-License-Identifier: Apache-2.0
#pragma once

// LostRanks: the FFN ranks that have no process just now, as afdd told a session, and whether the
// session can do without them (R12): each expert has a replica on another rank.
//
// What is not said counts as there: a session that hears late sends rows to a dead rank, and has
// the round voided when it hears. One data thread. Nothing allocates after construction.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "schedule/dispatch/expert_placement.h"
#include "schedule/layout/geometry.h"
#include "schedule/layout/router_placement.h"

namespace afd::schedule {

// Whether rows need not go to the ranks that are lost: all experts are on others, too. Where the
// ranks route (router = ffn), those that get a row have to know who does not, and can if that is
// one of the first kLeftOutRanksMax. Shape: is_lost [num_ranks()].
inline bool can_do_without(const std::vector<bool>& is_lost,
                           const ExpertPlacement& placement,
                           RouterPlacement router) {
    const size_t num_spare = router == RouterPlacement::kFfn ? kLeftOutRanksMax : is_lost.size();
    const auto last = std::find(is_lost.rbegin(), is_lost.rend(), true);
    const auto num_to_last = static_cast<size_t>(is_lost.rend() - last);
    return num_to_last <= num_spare && placement.is_whole_without(is_lost);
}

class LostRanks {
  public:
    // REQUIRES: the placement outlives this.
    LostRanks(const ExpertPlacement& placement, RouterPlacement router)
        : placement_(placement),
          router_(router),
          is_lost_(placement.num_ranks(), false),
          num_losses_(placement.num_ranks(), 0) {}

    // A rank that the instance does not have is ignored.
    void set(uint32_t rank, bool is_lost) {
        if (rank >= is_lost_.size()) return;
        is_lost_[rank] = is_lost;
        if (is_lost) ++num_losses_[rank];
        is_any_ = std::find(is_lost_.begin(), is_lost_.end(), true) != is_lost_.end();
        can_do_without_ = is_any_ && schedule::can_do_without(is_lost_, placement_, router_);
    }

    uint32_t num_ranks() const { return static_cast<uint32_t>(is_lost_.size()); }
    bool is_lost(uint32_t rank) const { return is_lost_[rank]; }
    // How often it was lost; each time a session may ask anew.
    uint64_t num_losses(uint32_t rank) const { return num_losses_[rank]; }
    bool is_any() const { return is_any_; }
    // Some are lost, and all experts are on others, too.
    bool can_do_without() const { return can_do_without_; }

  private:
    const ExpertPlacement& placement_;
    const RouterPlacement router_;
    std::vector<bool> is_lost_;
    std::vector<uint64_t> num_losses_;
    bool is_any_ = false;
    bool can_do_without_ = false;
};

}  // namespace afd::schedule
